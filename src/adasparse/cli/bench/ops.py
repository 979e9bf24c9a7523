"""``adasparse bench ops``: entmax and its loss beside softmax and cross entropy."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adasparse.bench import ops as benchmark
from adasparse.bench.results import Result, Row, Settings
from adasparse.bench.tables import alpha_name, size
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


def ops(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time entmax and its loss beside softmax and cross entropy.

    The ratio is the speedup over the baseline: above 1, adasparse is faster.
    """
    check_directory(output)
    settings = Settings(
        benchmark="ops", threads=threads, repeats=repeats, seed=seed, is_quick=is_quick
    )
    run_benchmark(benchmark.measure, settings, show, as_json=as_json, output=output)


def show(result: Result) -> None:
    """Print a small table for each comparison: a column per alpha, 80 characters wide at most."""
    console = Console(highlight=False)
    groups: dict[str, list[Row]] = {}
    for row in result["results"]:
        title = (
            f"[bold]{row['operator']}[/] {size(row['shape'])}, {row['direction']}, "
            f"against {row['baseline']} at {row['baseline_ms']:.2f} ms"
        )
        groups.setdefault(title, []).append(row)
    for title, rows in groups.items():
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(min_width=6)
        for _ in rows:
            table.add_column(justify="right", min_width=8)
        table.add_row("α", *map(alpha_name, rows))
        table.add_row("ms", *(f"{row['ms']:.2f}" for row in rows))
        colors = ["green" if row["ratio"] >= 1 else "yellow" for row in rows]
        ratios = [f"{row['ratio']:.2f}×" for row in rows]
        table.add_row("ratio", *map(Text, ratios, colors))
        console.print(title, table, "")
