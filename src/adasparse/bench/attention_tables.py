"""The result of ``adasparse bench attention``, for the terminal and for a page."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adasparse.cli.bench import results
from adasparse.cli.bench.calls import BOTH, FORWARD, SOFTMAX
from adasparse.cli.bench.results import Result, Row


def show(result: Result) -> None:
    """Print what was measured and what was wanted; tables are 80 characters wide at most."""
    console = Console(highlight=False)
    for direction in (BOTH, FORWARD):
        rows = [row for row in _timed(result) if row["direction"] == direction]
        if rows:
            console.print(_table(direction, rows), "")
    for row in result["results"]:
        if fact := _fact(row):
            console.print(
                Text.assemble(fact, " ", _wanted(row), " ", _verdict(row)), soft_wrap=True
            )


def markdown(result: Result) -> str:
    """Render the times as a Markdown table, and the other facts in lines below it."""
    groups: dict[str, dict[str, Row]] = {}
    for row in _timed(result):
        groups.setdefault(row["case"], {})[row["direction"]] = row
    drawn = [["", "against", "b×h×n×d", f"{BOTH}: its ms", "ours", f"{FORWARD}: its ms", "ours"]]
    for group in groups.values():
        row = group[BOTH]
        times = [
            cell
            for way in (BOTH, FORWARD)
            for cell in (
                f"{group[way]['baseline_ms']:.2f}",
                f"{group[way]['ms']:.2f} ({group[way]['ratio']:.2f}×)",
            )
        ]
        drawn.append([row["title"], f"`{row['baseline']}`", results.size(row["shape"]), *times])
    facts = [fact for row in result["results"] if (fact := _fact(row))]
    table = results.markdown_table(drawn, left=3)
    return results.signed(table + "".join(f"\n{fact}\n" for fact in facts), result)


def _timed(result: Result) -> list[Row]:
    return [row for row in result["results"] if "ratio" in row]


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(title, min_width=20)
    for name in ("b×h×n×d", "its ms", "ours", "ratio", "wanted"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for row in rows:
        is_usual = row["baseline"] == SOFTMAX
        table.add_row(
            row["title"] if is_usual else f"{row['title']}, against {row['baseline']}",
            results.size(row["shape"]),
            f"{row['baseline_ms']:.2f}",
            f"{row['ms']:.2f}",
            f"{row['ratio']:.2f}×",
            _wanted(row),
            _verdict(row),
        )
    return table


def _fact(row: Row) -> str | None:
    """Render a row that is no comparison of times."""
    size = results.size(row["shape"])
    if "gib" in row:
        return (
            f"Peak extra memory, {row['direction']}, {size}: {row['gib']:.2f} GiB; "
            f"dense weights alone would take {row['dense_gib']:.2f} GiB."
        )
    if "share" in row:
        return (
            f"QKᵀ inside the kernel, {size}: {row['gflops']:.0f} GFLOP/s, {row['share']:.0%} of "
            f"the {row['gemm_gflops']:.0f} that torch.matmul reaches on large matrices."
        )
    return None


def _wanted(row: Row) -> str:
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
