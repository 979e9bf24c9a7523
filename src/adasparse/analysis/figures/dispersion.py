"""Dispersion of attention against length."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, PercentFormatter, ScalarFormatter

from adasparse._files import write_atomically
from adasparse.analysis.dispersion.measure import Dispersion
from adasparse.analysis.dispersion.runs import RunDispersion, name_runs
from adasparse.analysis.figures.style import (
    GRAY,
    INK,
    NumberedFigure,
    literal,
    look_of,
    new_figure,
    plain,
    save_figure,
    shortened,
    styled,
)

#: Name of the files of an analysis of dispersion.
NAME = "dispersion"
#: Panels of the figure: a field of ``HeadDispersion``, and its title.
_PANELS = {
    "entropy": "entropy (nats)",
    "support": "support size",
    "relevant": "weight on the relevant token",
}


class _Point(NamedTuple):
    length: int
    mean: float
    lowest: float
    highest: float


@styled
def dispersion_by_length(
    found: Mapping[str, Dispersion], *, train_lengths: Sequence[int] = ()
) -> NumberedFigure:
    """Draw entropy, support size and weight on the relevant token against length, a panel each.

    A line is the mean over the heads of a model, and its band goes from the lowest of them to the
    highest. Support sizes are on a logarithmic scale.

    Args:
        found: Dispersion of each model, by the name of its line; all of the same task.
        train_lengths: Marked with vertical lines.
    """
    if not found:
        raise ValueError("dispersion_by_length needs a model that was measured; got none.")
    tasks = sorted({each.task for each in found.values()})
    if len(tasks) > 1:
        raise ValueError(f"all models must be measured by the same task; got {', '.join(tasks)}.")
    figure = new_figure(12.8, 3.4)
    names = sorted(found)
    grid = figure.subplots(1, len(_PANELS))
    lines: dict[str, Line2D] = {}
    for axes, (field, title) in zip(grid, _PANELS.items(), strict=True):
        _dress(axes, title, list(found.values()), train_lengths)
        for number, name in enumerate(names):
            points = _points(found[name], field)
            lines[name] = _draw(axes, number, points)
            figure.numbers += [
                {"run": name, "task": tasks[0], "measure": field, **point._asdict()}
                for point in points
            ]
    grid[1].set_yscale("log", base=2)
    grid[1].yaxis.set_major_formatter(ScalarFormatter())
    grid[2].yaxis.set_major_formatter(PercentFormatter(1.0))
    grid[2].set_ylim(bottom=0)
    figure.suptitle(literal(tasks[0]), color=INK, fontsize=10)
    figure.legend(
        list(lines.values()),
        [literal(shortened(name, 40)) for name in names],
        frameon=False,
        fontsize=8,
        loc="outside right upper",
    )
    return figure


def _points(found: Dispersion, field: str) -> list[_Point]:
    """Return mean and range over the heads at each length at which the field has values."""
    points = []
    for each in found.lengths:
        every = [getattr(head, field) for head in each.heads]
        values = [value for value in every if value is not None]
        if values:
            mean = sum(values) / len(values)
            points.append(_Point(each.length, mean, min(values), max(values)))
    return points


def _draw(axes: Axes, number: int, points: Sequence[_Point]) -> Line2D:
    """Draw the line of a model and its band; return the line."""
    look = look_of(number)
    lengths = [point.length for point in points]
    edges = [point.lowest for point in points], [point.highest for point in points]
    axes.fill_between(lengths, *edges, color=look.color, alpha=0.12, linewidth=0)
    for edge in edges:
        axes.plot(lengths, edge, color=look.color, linewidth=0.5, alpha=0.6)
    (line,) = axes.plot(
        lengths,
        [point.mean for point in points],
        color=look.color,
        linestyle=look.line,
        marker=look.marker,
        markersize=4,
    )
    return line


def _dress(
    axes: Axes, title: str, found: Sequence[Dispersion], train_lengths: Sequence[int]
) -> None:
    plain(axes)
    lengths: Any = sorted({each.length for model in found for each in model.lengths})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", rotation=45)
    axes.set_title(title, color=INK, fontsize=10)
    axes.set_xlabel("length", color=INK, fontsize=9)
    for length in set(train_lengths):
        axes.axvline(length, color=GRAY, linewidth=0.8, linestyle=(0, (2, 2)))


def write_dispersion(found: Sequence[RunDispersion], folder: str | Path) -> list[Path]:
    """Write ``dispersion.json`` and the figure with its numbers; return the paths."""
    named = {name: x.dispersion for name, x in zip(name_runs(found), found, strict=True)}
    figure = dispersion_by_length(named, train_lengths=[each.train_length for each in found])
    path = Path(folder) / f"{NAME}.json"
    text = json.dumps([each.to_dict() for each in found], indent=2)
    write_atomically(path, f"{text}\n", make_folders=True)
    return [path, *save_figure(figure, Path(folder) / NAME)]
