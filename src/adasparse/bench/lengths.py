"""``adasparse bench lengths``: time and memory of attention as sequences grow."""

import contextlib
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from adasparse.cli.bench import calls, memory, results
from adasparse.cli.bench.calls import OURS, PACKAGE, SOFTMAX
from adasparse.cli.bench.options import (
    AsJson,
    Output,
    Quick,
    Repeats,
    Seed,
    Threads,
    check_directory,
)
from adasparse.cli.bench.results import Result, Row, Settings
from adasparse.cli.timing import best_times

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
#: The longest sequences for the package: minutes of time, gigabytes of memory.
PACKAGE_TIMED, PACKAGE_WEIGHED = 2048, 4096
BATCH, NUM_HEADS, HEAD_DIM = 1, 8, 64
#: Headings of a table.
SHORT_NAMES = {OURS: "adasparse", SOFTMAX: "softmax", PACKAGE: "entmax package"}


def lengths(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time forward and backward of attention at many lengths, and measure the peak of memory.

    Memory is what comes on top of the inputs and the incoming gradient.
    """
    check_directory(output)
    settings = Settings(
        benchmark="lengths",
        threads=threads,
        repeats=repeats,
        seconds=results.COMPARISON_SECONDS,
        seed=seed,
        is_quick=is_quick,
    )
    with settings.set_threads():
        result = measure(settings)
    results.deliver(result, show, as_json=as_json, output=output)


def measure(settings: Settings) -> Result:
    """Take all measurements: a row for each function at each length."""
    wanted, shrink = (LENGTHS[::2], 8) if settings.is_quick else (LENGTHS, 1)
    has_package, has_memory = calls.has_entmax_package(), memory.is_available()
    rows: list[Row] = []
    with results.progress_bar() as progress:
        task = progress.add_task("", total=len(wanted))
        for length in wanted:
            progress.update(task, description=f"{length // shrink} tokens")
            shape = (BATCH, NUM_HEADS, length // shrink, HEAD_DIM)
            names = [OURS, SOFTMAX]
            timed = names + [PACKAGE] * (has_package and length <= PACKAGE_TIMED)
            weighed = names + [PACKAGE] * (has_package and length <= PACKAGE_WEIGHED)
            ms = _milliseconds(timed, shape, settings)
            gib = _gib(weighed, shape, settings) if has_memory else {}
            rows += [
                {"name": name, "shape": list(shape), "ms": ms.get(name), "gib": gib.get(name)}
                for name in (OURS, SOFTMAX, PACKAGE)
                if name in ms or name in gib
            ]
            progress.advance(task)
    skipped = [] if has_package else [calls.PACKAGE_MISSING]
    skipped += [] if has_memory else [memory.UNAVAILABLE]
    return settings.result(skipped=skipped, results=rows)


def _milliseconds(
    names: list[str], shape: tuple[int, int, int, int], settings: Settings
) -> dict[str, float]:
    generator = torch.Generator().manual_seed(settings.seed)
    *inputs, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    times = best_times(
        {name: calls.both(calls.attention(name), *inputs, grad=grad) for name in names},
        repeats=settings.rounds,
        seconds=settings.seconds,
    )
    return {name: 1000 * seconds for name, seconds in times.items()}


def _gib(
    names: list[str], shape: tuple[int, int, int, int], settings: Settings
) -> dict[str, float]:
    """Peak of each function, save those that the system ended for taking too much."""
    peaks = {}
    for name in names:
        with contextlib.suppress(BrokenProcessPool):
            peaks[name] = memory.peak_extra_gib(
                name, shape, threads=settings.num_threads, seed=settings.seed
            )
    return peaks


def show(result: Result) -> None:
    """Print a table with a line for each length."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    header, *lines = _lines(result)
    for name in header:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*line)
    Console(highlight=False).print(table, "")


def markdown(result: Result) -> str:
    """Render the result as a Markdown table with a line for each length."""
    return results.signed(results.markdown_table(_lines(result), left=0), result)


def _lines(result: Result) -> list[list[str]]:
    """The cells of a table, the header first."""
    names = list(dict.fromkeys(row["name"] for row in result["results"]))
    header = [
        "tokens",
        *(f"{SHORT_NAMES[name]}, {unit}" for unit in ("ms", "MiB") for name in names),
    ]
    by_length: dict[int, dict[str, Row]] = {}
    for row in result["results"]:
        by_length.setdefault(row["shape"][2], {})[row["name"]] = row
    return [header] + [
        [
            str(length),
            *(_cell(rows.get(name, {}), "ms", 1) for name in names),
            *(_cell(rows.get(name, {}), "gib", 1024) for name in names),
        ]
        for length, rows in by_length.items()
    ]


def _cell(row: dict[str, Any], measure: str, factor: float) -> str:
    value = row.get(measure)
    return "" if value is None else f"{factor * value:.1f}"
