import subprocess
import sys
from pathlib import Path

import pytest

import adasparse.kernels
from adasparse.kernels import cpu


@pytest.mark.skipif(not cpu.is_available(), reason="the compiled kernels are not installed")
def test_types_of_the_extension_are_current(tmp_path):
    pytest.importorskip("nanobind")
    current = tmp_path / "_native.pyi"
    command = ["-m", "nanobind.stubgen", "-m", "adasparse.kernels._native", "-o", str(current)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    written = Path(adasparse.kernels.__file__).with_name("_native.pyi")
    assert written.read_text() == current.read_text(), "run `make stub`"
