"""``adasparse bench lengths``: time and memory of attention as sequences grow."""

from rich.console import Console
from rich.table import Table

from adasparse.bench import lengths as benchmark
from adasparse.bench.results import COMPARISON_SECONDS, Result, Settings
from adasparse.bench.tables import length_cells
from adasparse.cli.bench.options import (
    AsJson,
    Output,
    Quick,
    Repeats,
    Seed,
    Threads,
    check_directory,
)
from adasparse.cli.bench.output import run_benchmark


def lengths(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time forward and backward of attention at many lengths, and measure the peak of memory.

    Memory is counted on top of the inputs and the incoming gradient.
    """
    check_directory(output)
    settings = Settings(
        benchmark="lengths",
        threads=threads,
        repeats=repeats,
        seconds=COMPARISON_SECONDS,
        seed=seed,
        is_quick=is_quick,
    )
    run_benchmark(benchmark.measure, settings, show, as_json=as_json, output=output)


def show(result: Result) -> None:
    """Print a table with a line for each length."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    header, *lines = length_cells(result)
    for name in header:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*line)
    Console(highlight=False).print(table, "")
