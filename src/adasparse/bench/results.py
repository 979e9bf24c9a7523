"""Results of benchmarks: the settings of a run, and a record that names command and machine."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import torch

from adasparse import diagnostics
from adasparse.bench import devices

Result = dict[str, Any]
Row = dict[str, Any]
#: Called with what is being measured, how much of the whole is done, and how much there is.
Progress = Callable[[str, int, int], object]

#: Seconds for the rounds of a long comparison, which gets a few rounds even if they take longer.
COMPARISON_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one run of a benchmark.

    Args:
        benchmark: Name of the command.
        threads: CPU threads; None is torch's choice.
        repeats: Rounds; None is the usual number.
        seconds: Time limit for the rounds of one comparison.
        seed: Seed of the random numbers.
        is_quick: Whether to measure at smaller sizes.
        cases: Names of the cases to run; empty for all.
        device: Device to measure, ``"cpu"`` or ``"cuda"``, with an index or without.
        dtype: Name of the dtype of query, key and value, where a benchmark has a choice.
        run: Folder of a trained model, of benchmarks that use one.
    """

    benchmark: str
    threads: int | None
    repeats: int | None
    seconds: float = math.inf
    seed: int
    is_quick: bool
    cases: tuple[str, ...] = ()
    device: str = "cpu"
    dtype: str = "float32"
    run: str | None = None

    @property
    def rounds(self) -> int:
        """Rounds of each comparison."""
        return self.repeats or (3 if self.is_quick else 30)

    @property
    def num_threads(self) -> int:
        """Threads in use while measuring."""
        return self.threads or torch.get_num_threads()

    def result(self, *, skipped: list[str], **measured: object) -> Result:
        """Return the record of the run: its command, its machine and its measurements."""
        options = f"--threads {self.num_threads} --repeats {self.rounds} --seed {self.seed}"
        options += " --quick" * self.is_quick + "".join(f" --case {name}" for name in self.cases)
        options += "" if self.run is None else f" --run {self.run}"
        if (self.device, self.dtype) != ("cpu", "float32"):
            options += f" --device {self.device} --dtype {self.dtype}"
        return {
            "benchmark": self.benchmark,
            "command": f"adasparse bench {self.benchmark} {options}",
            "machine": {
                **devices.facts(self.device),
                "threads": self.num_threads,
                "date": datetime.now(timezone.utc).date().isoformat(),
                **diagnostics.versions(),
            },
            "device": self.device,
            "dtype": self.dtype,
            "seed": self.seed,
            "repeats": self.rounds,
            "quick": self.is_quick,
            "skipped": skipped,
            **measured,
        }


def signature(result: Result) -> str:
    """Return the machine and the versions behind the numbers, in one line."""
    machine = result["machine"]
    names = ("gpu", "isa", "torch") if "gpu" in machine else ("cpu", "isa", "threads", "torch")
    facts = {name: machine[name] for name in names}
    signed = {**facts, "seed": result["seed"], "v": machine["adasparse"]}
    return f"{result['benchmark']} | " + " ".join(
        f"{name}:{str(value).replace(' ', '-')}" for name, value in signed.items()
    )
