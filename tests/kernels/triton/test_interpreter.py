"""The Triton kernels under the interpreter, in processes of their own.

Triton reads ``TRITON_INTERPRET`` when it is first imported, which other tests may have done.
"""

import faulthandler
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

FOLDER = Path(__file__).parent
CHECKS = sorted(path.name for path in FOLDER.glob("check_*.py"))
# Two processes, about equally long: starting one takes seconds.
LONG = ["check_attention.py", "check_decode.py"]
PARTS = [LONG, [name for name in CHECKS if name not in LONG]]


def run(names: list[str], markers: str, environment: dict[str, str]) -> None:
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command = [*pytest_command, "-m", markers, *names]
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTEST_ADDOPTS")}
    found = subprocess.run(
        command, cwd=FOLDER, env={**kept, **environment}, capture_output=True, text=True
    )
    # 5: nothing to run
    assert found.returncode in (0, 5), found.stdout[-5000:] + found.stderr[-2000:]


@pytest.mark.parametrize("names", PARTS, ids=["long", "others"])
def test_checks_pass_under_the_interpreter(names):
    run(names, "not slow and not gpu", {"TRITON_INTERPRET": "1"})


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_slow_checks_pass_under_the_interpreter(name):
    faulthandler.cancel_dump_traceback_later()  # the other process limits each of its checks
    run([name], "slow and not gpu", {"TRITON_INTERPRET": "1"})


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass_on_the_device(name):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    run([name], "", {})
