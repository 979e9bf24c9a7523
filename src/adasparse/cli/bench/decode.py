"""``adasparse bench decode``: single queries against many keys."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adasparse.bench import decode as benchmark
from adasparse.bench.devices import default_dtype
from adasparse.bench.results import COMPARISON_SECONDS, Result, Settings
from adasparse.bench.tables import share_fact, size
from adasparse.cli.bench.options import (
    AsJson,
    Device,
    Dtype,
    Output,
    Quick,
    Repeats,
    Seed,
    Threads,
    case_option,
    check_directory,
)
from adasparse.cli.bench.output import run_benchmark


def decode(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    cases: Annotated[list[str] | None, case_option(benchmark.case_names())] = None,
    device: Device = "cpu",
    dtype: Dtype = None,
    run: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder of 'adasparse tasks train', whose keys the case 'trained' decodes with.",
        ),
    ] = None,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time single queries against many keys beside softmax attention, and generation.

    The ratio is the speedup over the baseline: above 1, adasparse is faster.
    """
    check_directory(output)
    settings = Settings(
        benchmark="decode",
        threads=threads,
        repeats=repeats,
        seconds=COMPARISON_SECONDS,
        seed=seed,
        is_quick=is_quick,
        cases=tuple(cases or ()),
        device=device,
        dtype=dtype or default_dtype(device),
        run=None if run is None else str(run),
    )
    run_benchmark(benchmark.measure, settings, show, as_json=as_json, output=output)


def show(result: Result) -> None:
    """Print measurements beside the bars they should reach; at most 80 characters wide."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("one token", min_width=20)
    for name in ("b×h×k×d", "baseline", "ours", "ratio", "bar"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for row in result["results"]:
        is_met = row["bar"] is not None and row["ratio"] >= row["bar"]
        verdict = Text("met", "green") if is_met else Text("missed", "bold red")
        table.add_row(
            row["title"],
            size(row["shape"]),
            f"{row['baseline_ms']:.3f}",
            f"{row['ms']:.3f}",
            f"{row['ratio']:.2f}×",
            "" if row["bar"] is None else f"≥ {row['bar']:g}",
            Text("") if row["bar"] is None else verdict,
        )
    console = Console(highlight=False)
    console.print(table, "")
    for row in result["results"]:
        if fact := share_fact(row):
            console.print(fact, soft_wrap=True)
