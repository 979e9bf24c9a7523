"""Figures of the pages: the same bytes for the same logs."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.statistics import mean_interval
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullLocator

_INK, _GRAY, _FAINT = "#333333", "#8a8a8a", "#e4e4e4"
#: Colors of Okabe and Ito, which differ for every kind of eye.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SETTINGS: Any = {
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "svg.hashsalt": "adasparse",
}

#: Values over seeds by place on the x axis, for each line of a panel.
Lines = Mapping[str, Mapping[float, Sequence[float]]]


def draw_lines(
    stem: Path,
    panels: Mapping[str, Lines],
    *,
    x_label: str,
    logarithmic: Sequence[str] = (),
    percent: Sequence[str] = (),
    is_length: bool = True,
) -> list[Path]:
    """Write means over seeds with bands of 95% intervals as SVG, and the numbers as CSV.

    Args:
        stem: Path of both files without their endings.
        panels: Lines by the title of their panel.
        x_label: Label below the panels.
        logarithmic: Panels with a logarithmic y axis.
        percent: Panels whose values are percentages.
        is_length: Whether the x axis is logarithmic, with a tick at every value.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    rows: list[dict[str, Any]] = []
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(2.2 + 3.6 * len(panels), 3.4), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, lines) in zip(grid, panels.items(), strict=True):
            _dress(axes, title, x_label)
            for name, points in lines.items():
                rows += _draw(axes, title, name, names.index(name), points)
            if is_length:
                _length_axis(axes, sorted({x for points in lines.values() for x in points}))
            if title in logarithmic:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(LogFormatter())
                axes.yaxis.set_minor_formatter(LogFormatter())
            if title in percent:
                axes.set_ylim(-3, 103)
        entries = {str(x.get_label()): x for axes in grid for x in axes.get_lines()}
        figure.legend(
            [entries[name] for name in names if name in entries],
            [name for name in names if name in entries],
            frameon=False,
            fontsize=8,
            loc="outside right upper",
        )
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    picture, numbers = stem.with_suffix(".svg"), stem.with_suffix(".csv")
    write_text(picture, buffer.getvalue())
    write_text(numbers, _csv(rows))
    return [picture, numbers]


def _draw(
    axes: Axes, title: str, name: str, number: int, points: Mapping[float, Sequence[float]]
) -> list[dict[str, Any]]:
    places = sorted(points)
    found = [mean_interval(list(points[x])) for x in places]
    color = _COLORS[number % len(_COLORS)]
    if all(x.count > 1 for x in found):
        low, high = ([getattr(x, end) for x in found] for end in ("low", "high"))
        axes.fill_between(places, low, high, color=color, alpha=0.12, linewidth=0)
    axes.plot(
        places,
        [x.mean for x in found],
        color=color,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=4,
        linewidth=1.4,
        label=name,
    )
    return [
        {"panel": title, "line": name, "x": x, "mean": y.mean, "low": y.low, "high": y.high}
        | {"seeds": y.count}
        for x, y in zip(places, found, strict=True)
    ]


def _dress(axes: Axes, title: str, x_label: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GRAY)
    axes.tick_params(which="both", color=_GRAY, labelcolor=_INK, labelsize=8)
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title, color=_INK, fontsize=10)
    axes.set_xlabel(x_label, color=_INK, fontsize=9)


def _length_axis(axes: Axes, places: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{x:g}" for x in places], rotation=45)
    axes.xaxis.set_minor_locator(NullLocator())


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: f"{x:.6g}" if isinstance(x, float) else x for key, x in row.items()} for row in rows
    )
    return text.getvalue()
