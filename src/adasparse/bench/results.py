"""What a benchmark leaves: a result that names its command and its machine."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from adasparse.cli import machine

Result = dict[str, Any]
Row = dict[str, Any]
Rendered = TypeVar("Rendered")

#: Seconds for the rounds of a long comparison, which gets a few rounds even if they take longer.
COMPARISON_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a benchmark is run.

    Args:
        benchmark: Name of the command.
        threads: CPU threads; None is torch's choice.
        repeats: Rounds; None is the usual number.
        seconds: What the rounds of one comparison may take together.
        seed: Seed of the random numbers.
        is_quick: Whether to measure at smaller sizes.
        cases: Names of the cases to run; empty for all.
    """

    benchmark: str
    threads: int | None
    repeats: int | None
    seconds: float = math.inf
    seed: int
    is_quick: bool
    cases: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """Rounds of each comparison."""
        return self.repeats or (3 if self.is_quick else 30)

    @property
    def num_threads(self) -> int:
        """Threads in use while measuring."""
        return self.threads or torch.get_num_threads()

    @contextmanager
    def set_threads(self) -> Iterator[None]:
        """Give torch the number of threads, and put the former one back in the end."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.num_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def result(self, *, skipped: list[str], **measured: object) -> Result:
        """Everything there is to know about the run, and what it measured."""
        options = f"--threads {self.num_threads} --repeats {self.rounds} --seed {self.seed}"
        options += " --quick" * self.is_quick + "".join(f" --case {name}" for name in self.cases)
        return {
            "benchmark": self.benchmark,
            "command": f"adasparse bench {self.benchmark} {options}",
            "machine": {
                "cpu": machine.processor()["model"],
                "isa": machine.kernels()["isa"] or "plain PyTorch",
                "threads": self.num_threads,
                "date": datetime.now(timezone.utc).date().isoformat(),
                **machine.versions(),
            },
            "seed": self.seed,
            "repeats": self.rounds,
            "quick": self.is_quick,
            "skipped": skipped,
            **measured,
        }


def progress_bar() -> Progress:
    """A bar on stderr that is gone in the end."""
    return Progress(console=Console(stderr=True), transient=True)


def deliver(
    result: Result, show: Callable[[Result], object], *, as_json: bool, output: Path | None
) -> None:
    """Write the JSON if wanted, and print it or a table."""
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if output:
        write_atomically(output, text)
    if as_json:
        typer.echo(text, nl=False)
        return
    show(result)
    console = Console(highlight=False)
    for note in result["skipped"]:
        console.print(f"Skipped: {note}.")
    console.print(signature(result), soft_wrap=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write under a temporary name, then rename: ``path`` is never half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(file: Path, render: Callable[[Result], Rendered]) -> Rendered:
    """Return what ``render`` makes of a result; a file without one is a mistake of the caller."""
    try:
        return render(json.loads(file.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise typer.BadParameter(
            f"{file} must be JSON written by 'adasparse bench'; got {error!r}."
        ) from error


def signature(result: Result) -> str:
    """On what the numbers were measured, in one line."""
    facts = {name: result["machine"][name] for name in ("cpu", "isa", "threads", "torch")}
    signed = {**facts, "seed": result["seed"], "v": result["machine"]["adasparse"]}
    return f"{result['benchmark']} | " + " ".join(
        f"{name}:{str(value).replace(' ', '-')}" for name, value in signed.items()
    )


def markdown_table(rows: list[list[str]], *, left: int) -> str:
    """Draw rows of cells, the header first, with ``left`` columns of text before the numbers."""
    ruler = ["---"] * left + ["---:"] * (len(rows[0]) - left)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (rows[0], ruler, *rows[1:]))


def signed(drawn: str, result: Result) -> str:
    """Put the command and the signature under what was drawn."""
    return f"{drawn}\n`{result['command']}`\\\n`{signature(result)}`\n"


def size(shape: list[int]) -> str:
    """Render a shape."""
    return "×".join(map(str, shape))
