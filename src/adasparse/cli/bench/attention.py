"""``adasparse bench attention``: sparse attention beside softmax attention."""

from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adasparse.bench import attention as benchmark
from adasparse.bench.calls import BOTH, FORWARD, SOFTMAX
from adasparse.bench.devices import default_dtype
from adasparse.bench.results import COMPARISON_SECONDS, Result, Row, Settings
from adasparse.bench.tables import other_fact, size, timed_rows
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


def attention(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    cases: Annotated[list[str] | None, case_option(benchmark.case_names())] = None,
    device: Device = "cpu",
    dtype: Dtype = None,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time attention beside softmax attention, and measure its memory.

    The ratio is the speedup over the baseline: above 1, adasparse is faster. Long cases get fewer
    rounds. A GPU has cases of its own, and AdaSplash beside softmax if that is installed.
    """
    check_directory(output)
    settings = Settings(
        benchmark="attention",
        threads=threads,
        repeats=repeats,
        seconds=COMPARISON_SECONDS,
        seed=seed,
        is_quick=is_quick,
        cases=tuple(cases or ()),
        device=device,
        dtype=dtype or default_dtype(device),
    )
    run_benchmark(benchmark.measure, settings, show, as_json=as_json, output=output)


def show(result: Result) -> None:
    """Print measurements beside the bars they should reach; at most 80 characters wide."""
    console = Console(highlight=False)
    for direction in (BOTH, FORWARD):
        rows = [row for row in timed_rows(result) if row["direction"] == direction]
        if rows:
            console.print(_table(direction, rows), "")
    for row in result["results"]:
        if fact := other_fact(row):
            console.print(Text.assemble(fact, " ", _bar(row), " ", _verdict(row)), soft_wrap=True)


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(title, min_width=20)
    for name in ("b×h×n×d", "baseline", "ours", "ratio", "bar"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for row in rows:
        is_usual = row["baseline"] == SOFTMAX
        table.add_row(
            row["title"] if is_usual else f"{row['title']}, against {row['baseline']}",
            size(row["shape"]),
            f"{row['baseline_ms']:.2f}",
            f"{row['ms']:.2f}",
            f"{row['ratio']:.2f}×",
            _bar(row),
            _verdict(row),
        )
    return table


def _bar(row: Row) -> str:
    if row["bar"] is None:
        return ""
    if "share" in row:
        return f"≥ {row['bar']:.0%}"
    return f"≤ {row['bar']:g} GiB" if "gib" in row else f"≥ {row['bar']:g}"


def _verdict(row: Row) -> Text:
    if row["bar"] is None:
        return Text("")
    is_met = row["gib"] <= row["bar"] if "gib" in row else _reached(row) >= row["bar"]
    return Text("met", "green") if is_met else Text("missed", "bold red")


def _reached(row: Row) -> float:
    return float(row["share"] if "share" in row else row["ratio"])
