"""Installation without kernels, where the compiler cannot build them or there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
COMPILER = shutil.which("g++") or shutil.which("clang++")

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="compilers here are shell scripts"),
    pytest.mark.skipif(CMAKE is None or COMPILER is None, reason="needs CMake and a compiler"),
]

#: Compiles everything but the vectors of the kernels, as compilers without vector extensions do.
OLD_COMPILER = """#!/bin/sh
case "$*" in *simd/probe.cpp*) echo "error: unknown attribute 'vector_size'" >&2; exit 1;; esac
exec {compiler} "$@"
"""


def reason_of_installation(folder, compiler):
    """Configure and install with that compiler; return CMake's output and the reason it leaves."""
    environment = {**os.environ, "CXX": str(compiler), "CMAKE_CXX_COMPILER_LAUNCHER": ""}
    output = ""
    for arguments in (
        ["-S", str(ROOT), "-B", str(folder / "build")],
        ["--install", str(folder / "build"), "--prefix", str(folder / "installed")],
    ):
        assert CMAKE is not None
        done = subprocess.run(
            [CMAKE, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        output += done.stdout + done.stderr
    return output, (folder / "installed/adasparse/kernels/no_kernels.txt").read_text()


def test_compiler_without_vector_extensions(tmp_path):
    compiler = tmp_path / "old-compiler"
    compiler.write_text(OLD_COMPILER.format(compiler=COMPILER))
    compiler.chmod(0o755)
    output, reason = reason_of_installation(tmp_path, compiler)
    assert reason.startswith("they need GCC 12 or newer, or Clang 15 or newer; ")
    assert reason.endswith(" cannot compile them\n")
    assert output.count("installs without its compiled kernels") == 1


def test_no_compiler(tmp_path):
    _, reason = reason_of_installation(tmp_path, tmp_path / "missing")
    assert reason.startswith("no C++ compiler was found; they need GCC 12")
