"""The Triton kernels under the interpreter, in processes of their own.

Triton reads ``TRITON_INTERPRET`` when it is first imported, which other tests may have done.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

FOLDER = Path(__file__).parent
CHECKS = sorted(path.name for path in FOLDER.glob("check_*.py"))


def run(name: str, markers: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", markers, name]
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTEST_ADDOPTS")}
    found = subprocess.run(
        command, cwd=FOLDER, env={**kept, **environment}, capture_output=True, text=True
    )
    # 5: nothing to run
    assert found.returncode in (0, 5), found.stdout[-5000:] + found.stderr[-2000:]


@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass_under_the_interpreter(name):
    run(name, "not slow and not gpu", {"TRITON_INTERPRET": "1"})


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_slow_checks_pass_under_the_interpreter(name):
    run(name, "slow and not gpu", {"TRITON_INTERPRET": "1"})


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass_on_the_device(name):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    run(name, "", {})
