"""Commands of a piece of work: started, watched, and stopped when time is up."""

import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: Seconds that a command has to write its checkpoint after it was asked to stop.
_PATIENCE = 120
_PR_SET_PDEATHSIG = 1
_FACTS = (
    "import json, torch, adasparse; print(json.dumps([torch.__version__, adasparse.__version__]))"
)


class OutOfTimeError(Exception):
    """Raised when the time of a runner is up: the piece is to be resumed another time."""


class NotReadyError(Exception):
    """Raised when a piece needs others that are not done: it is to be taken another time."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Where pieces are done, and with what.

    Args:
        work: Folder of the checkpoints, outside of the repository.
        data: Folder of the corpora.
        results: Folder of the published logs.
        python: Interpreter that has adasparse.
        threads: Threads of each command.
        deadline: Time on the monotonic clock at which commands are stopped.
        held: Descriptors of locks, which commands hold as well: a runner may die before them.
    """

    work: Path
    data: Path
    results: Path
    python: str = sys.executable
    threads: int = 1
    deadline: float = float("inf")
    held: tuple[int, ...] = ()

    def adasparse(self, *arguments: str | Path, log: Path) -> str:
        """Run a command of adasparse; return its output."""
        return self.run([self.python, "-m", "adasparse", *arguments], log=log)

    def run(self, command: Sequence[str | Path], *, log: Path) -> str:
        """Run a command; return its standard output, and add its messages to a file.

        Raises:
            OutOfTimeError: If it was stopped, having written a checkpoint if it writes any.
            RuntimeError: If it failed.
        """
        if time.monotonic() >= self.deadline:
            raise OutOfTimeError
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.with_suffix(".stdout")
        with log.open("a", encoding="utf-8") as messages, output.open("w") as out:
            messages.write(f"$ {' '.join(map(str, command))}\n")
            messages.flush()
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=messages,
                cwd=ROOT,
                env={**os.environ, **self._environment()},
                pass_fds=self.held,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
            is_over = self._wait(process)
        text = output.read_text(encoding="utf-8")
        output.unlink()
        if is_over:
            raise OutOfTimeError
        if process.returncode:
            tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-10:])
            raise RuntimeError(f"exit code {process.returncode}; {log} ends with:\n{tail}")
        return text

    def _environment(self) -> dict[str, str]:
        count = str(self.threads)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        # Freed memory is kept: giving it back costs page faults in every step.
        kept = {"MALLOC_TRIM_THRESHOLD_": "2147483648", "MALLOC_MMAP_THRESHOLD_": "2147483648"}
        return {**dict.fromkeys(names, count), **kept, "TOKENIZERS_PARALLELISM": "false"}

    def _wait(self, process: "subprocess.Popen[bytes]") -> bool:
        """Wait for the end of a process; tell whether it was stopped because time is up."""
        left = self.deadline - time.monotonic()
        try:
            process.wait(None if left == float("inf") else max(0.0, left))
            return False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE)
            raise
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return True

    def settings(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings as this machine runs them: without bfloat16 where it is emulated."""
        return {
            key: x and multiplies_bfloat16() if key == "bf16" else x for key, x in declared.items()
        }

    def machine(self) -> dict[str, Any]:
        """Return what the logs say of machine and versions."""
        found = subprocess.run(
            [self.python, "-c", _FACTS], check=True, capture_output=True, text=True, cwd=ROOT
        )
        torch_version, version = json.loads(found.stdout.splitlines()[-1])
        return {
            "cpu": _described("model name") or platform.processor() or platform.machine(),
            "bfloat16": multiplies_bfloat16(),
            "threads": self.threads,
            "torch": torch_version,
            "adasparse": version,
        }


def _end_with_parent() -> None:
    """Have the kernel ask this process to stop when its parent dies, kill -9 included."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def multiplies_bfloat16() -> bool:
    """Tell whether the processor has products of bfloat16; emulated ones take twice the time."""
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(_described("flags").split())


def _described(name: str) -> str:
    """Return what Linux says of the first processor, or nothing."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")
