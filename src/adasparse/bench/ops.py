"""``adasparse bench ops``: entmax and its loss next to softmax and cross entropy."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adasparse.cli.bench import calls, ops_cases, results
from adasparse.cli.bench.options import (
    AsJson,
    Output,
    Quick,
    Repeats,
    Seed,
    Threads,
    check_directory,
)
from adasparse.cli.bench.results import Result, Settings
from adasparse.cli.timing import best_times


def ops(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time entmax and its loss next to softmax and cross entropy.

    The ratio is the known function's time over ours: above 1, ours is faster.
    """
    check_directory(output)
    settings = Settings(
        benchmark="ops", threads=threads, repeats=repeats, seed=seed, is_quick=is_quick
    )
    with settings.set_threads():
        rows = measure(settings)
    skipped = [] if calls.has_entmax_package() else [calls.PACKAGE_MISSING]
    result = settings.result(skipped=skipped, results=rows)
    results.deliver(result, show, as_json=as_json, output=output)


def measure(settings: Settings) -> list[dict[str, Any]]:
    """Time every comparison; one row for each alpha of each."""
    compared = list(ops_cases.operators(is_quick=settings.is_quick, seed=settings.seed))
    rows = []
    with results.progress_bar() as progress:
        task = progress.add_task("", total=len(compared) * settings.rounds)
        for case in compared:
            what = f"{case.operator} against {case.baseline}, {case.shape}, {case.direction}"
            progress.update(task, description=what)
            times = best_times(
                {"known": case.known, **case.ours},
                repeats=settings.rounds,
                on_round=lambda: progress.advance(task),
            )
            known = times.pop("known")
            rows += [
                {
                    "operator": case.operator,
                    "alpha": alpha,
                    "baseline": case.baseline,
                    "shape": list(case.shape),
                    "direction": case.direction,
                    "ms": 1000 * seconds,
                    "baseline_ms": 1000 * known,
                    "ratio": known / seconds,
                }
                for alpha, seconds in times.items()
            ]
    return rows


def show(result: Result) -> None:
    """Print a small table for each comparison: a column per alpha, 80 characters wide at most."""
    console = Console(highlight=False)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in result["results"]:
        title = (
            f"[bold]{row['operator']}[/] {results.size(row['shape'])}, {row['direction']}, "
            f"against {row['baseline']} at {row['baseline_ms']:.2f} ms"
        )
        groups.setdefault(title, []).append(row)
    for title, rows in groups.items():
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(min_width=6)
        for _ in rows:
            table.add_column(justify="right", min_width=8)
        table.add_row("α", *map(_alpha, rows))
        table.add_row("ms", *(f"{row['ms']:.2f}" for row in rows))
        colors = ["green" if row["ratio"] >= 1 else "yellow" for row in rows]
        ratios = [f"{row['ratio']:.2f}×" for row in rows]
        table.add_row("ratio", *map(Text, ratios, colors))
        console.print(title, table, "")


def markdown(result: Result) -> str:
    """Render the result as a Markdown table, a column per alpha."""
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for row in result["results"]:
        names = (
            f"`{row['operator']}`",
            f"`{row['baseline']}`",
            results.size(row["shape"]),
            row["direction"],
            f"{row['baseline_ms']:.2f}",
        )
        groups.setdefault(names, {})[_alpha(row)] = f"{row['ms']:.2f} ({row['ratio']:.2f}×)"
    alphas = list(dict.fromkeys(_alpha(row) for row in result["results"]))
    rows = [["", "against", "shape", "", "its ms", *(f"α = {alpha}" for alpha in alphas)]]
    rows += [
        [*names, *(cells.get(alpha, "") for alpha in alphas)] for names, cells in groups.items()
    ]
    return results.signed(results.markdown_table(rows, left=4), result)


def _alpha(row: dict[str, Any]) -> str:
    return row["alpha"] if isinstance(row["alpha"], str) else f"{row['alpha']:g}"
