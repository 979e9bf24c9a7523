"""Markdown tables of benchmark results, each signed with its command and machine."""

from collections.abc import Callable
from typing import Any

from adasparse.bench.calls import BOTH, FORWARD, OURS, PACKAGE, SOFTMAX
from adasparse.bench.results import Result, Row, signature

#: Headings of the functions in a table over lengths.
SHORT_NAMES = {OURS: "adasparse", SOFTMAX: "softmax", PACKAGE: "entmax package"}


def markdown(result: Result) -> str:
    """Return a result as a Markdown table and the lines that sign it.

    Raises:
        KeyError: If it is not the result of a benchmark.
    """
    drawn = RENDERERS[result["benchmark"]](result)
    return f"{drawn}\n`{result['command']}`\\\n`{signature(result)}`\n"


def size(shape: list[int]) -> str:
    """Return a shape as text."""
    return "×".join(map(str, shape))


def alpha_name(row: Row) -> str:
    """Return the alpha of a row as text."""
    return row["alpha"] if isinstance(row["alpha"], str) else f"{row['alpha']:g}"


def _table(rows: list[list[str]], *, left: int) -> str:
    """Draw rows of cells, the header first, with ``left`` columns of text before the numbers."""
    ruler = ["---"] * left + ["---:"] * (len(rows[0]) - left)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (rows[0], ruler, *rows[1:]))


def _ops(result: Result) -> str:
    """Return a row per comparison, a column per alpha."""
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for row in result["results"]:
        names = (
            f"`{row['operator']}`",
            f"`{row['baseline']}`",
            size(row["shape"]),
            row["direction"],
            f"{row['baseline_ms']:.2f}",
        )
        groups.setdefault(names, {})[alpha_name(row)] = f"{row['ms']:.2f} ({row['ratio']:.2f}×)"
    alphas = list(dict.fromkeys(alpha_name(row) for row in result["results"]))
    header = ["", "baseline", "shape", "", "baseline (ms)", *(f"α = {alpha}" for alpha in alphas)]
    rows = [
        [*names, *(cells.get(alpha, "") for alpha in alphas)] for names, cells in groups.items()
    ]
    return _table([header, *rows], left=4)


def timed_rows(result: Result) -> list[Row]:
    """Return the rows that compare times."""
    return [row for row in result["results"] if "ratio" in row]


def _attention(result: Result) -> str:
    """Return the times as a table, and the other measurements in lines below it."""
    groups: dict[str, dict[str, Row]] = {}
    for row in timed_rows(result):
        groups.setdefault(row["case"], {})[row["direction"]] = row
    rows = [
        ["", "baseline", "b×h×n×d"]
        + [name for way in (BOTH, FORWARD) for name in (f"{way}: baseline (ms)", "adasparse (ms)")]
    ]
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
        rows.append([row["title"], f"`{row['baseline']}`", size(row["shape"]), *times])
    facts = [fact for row in result["results"] if (fact := other_fact(row))]
    return _table(rows, left=3) + "".join(f"\n{fact}\n" for fact in facts)


def other_fact(row: Row) -> str | None:
    """Return a row that compares no times as a sentence; None for one that does."""
    shape = size(row["shape"])
    if "gib" in row:
        return (
            f"Peak extra memory, {row['direction']}, {shape}: {row['gib']:.2f} GiB; "
            f"dense weights alone would take {row['dense_gib']:.2f} GiB."
        )
    if "share" in row:
        return (
            f"QKᵀ inside the kernel, {shape}: {row['gflops']:.0f} GFLOP/s, {row['share']:.0%} of "
            f"the {row['gemm_gflops']:.0f} that torch.matmul reaches on large matrices."
        )
    return None


def _decode(result: Result) -> str:
    """Return a row per number of keys, and the shares of keys in lines below."""
    header = ["one token", "baseline", "b×h×k×d", "baseline (ms)", "adasparse (ms)"]
    rows = [
        [
            row["title"],
            f"`{row['baseline']}`",
            size(row["shape"]),
            f"{row['baseline_ms']:.3f}",
            f"{row['ms']:.3f} ({row['ratio']:.2f}×)",
        ]
        for row in result["results"]
    ]
    facts = [fact for row in result["results"] if (fact := share_fact(row))]
    return _table([header, *rows], left=3) + "".join(f"\n{fact}\n" for fact in facts)


def share_fact(row: Row) -> str | None:
    """Return the shares of keys that decoding looked at as a sentence; None if not counted."""
    if "rescored" not in row:
        return None
    return (
        f"{row['title'].capitalize()}, {size(row['shape'])}: scores of {row['rescored']:.2%} of "
        f"the keys were computed in float32, {row['support']:.2%} have weight."
    )


def _lengths(result: Result) -> str:
    return _table(length_cells(result), left=0)


def length_cells(result: Result) -> list[list[str]]:
    """Return the cells of a table with a row for each length, the header first."""
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


RENDERERS: dict[str, Callable[[Result], str]] = {
    "ops": _ops,
    "attention": _attention,
    "decode": _decode,
    "lengths": _lengths,
}
