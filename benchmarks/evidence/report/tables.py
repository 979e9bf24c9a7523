"""Tables of the pages: numbers with intervals, bold where the interval says so."""

import math
from collections.abc import Sequence

from benchmarks.evidence.statistics import Interval, difference_interval, mean_interval


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Return the lines of a Markdown table, whose first ``left`` columns are text."""
    marks = ["---"] * left + ["---:"] * (len(head) - left)
    return [_row(head), _row(marks), *map(_row, rows), ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(
    values: Sequence[float],
    baseline: Sequence[float] | None = None,
    *,
    digits: int = 0,
    is_better_high: bool = True,
    unit: str = "",
) -> str:
    """Return a mean with half its interval, bold if it is better than a baseline's for sure.

    Args:
        values: One for each seed.
        baseline: Those of the baseline; nothing is bold without.
        digits: Digits after the point.
        is_better_high: Whether more is better.
        unit: Text after the mean, such as ``%``.
    """
    if not values:
        return ""
    found = mean_interval(values)
    text = f"{_number(found.mean, digits)}{unit}"
    if found.count > 1:
        text += f" ± {_number((found.high - found.low) / 2, digits)}"
    return f"**{text}**" if baseline and is_sure(values, baseline, is_better_high) else text


def is_sure(
    values: Sequence[float], baseline: Sequence[float], is_better_high: bool = True
) -> bool:
    """Tell whether the 95% interval of the difference to a baseline is on the better side."""
    found = difference_interval(values, baseline)
    return found.excludes_zero and (found.mean > 0) == is_better_high


def spoken(found: Interval, *, digits: int = 0, unit: str = "") -> str:
    """Return an estimate with its interval, for a sentence."""
    text = f"{_number(found.mean, digits)}{unit}"
    if math.isnan(found.low):
        return text
    return f"{text} ({_number(found.low, digits)} to {_number(found.high, digits)})"


def _number(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
