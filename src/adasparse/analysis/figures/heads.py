"""Figures of single heads: what they look at in a sentence. Figures 7 to 10 of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from adasparse.analysis.figures.style import (
    COLORS,
    GRAY,
    INK,
    NumberedFigure,
    literal,
    look_of,
    new_figure,
    plain,
    run_label,
    shortened,
    styled,
)
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.recording.layer_weights import Array

#: From a tint that is clearly not white to nearly black: zeros alone are blank.
_SHADES = LinearSegmentedColormap.from_list(
    "shades", ["#c6dcef", "#7fb3d8", "#3a7fb8", "#1a4e86", "#08203f"]
)
_GRID = "#dedede"
#: Number of queries and of keys that a matrix shows at most: those of longer texts are cut.
MOST_TOKENS = 64
OFFSETS = {"previous2": -2, "previous": -1, "self": 0, "next": 1, "next2": 2}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadPicture:
    """One head in one sentence.

    Args:
        run: Name of the run.
        title: Name of the head, and facts about it.
        weights: ``(q, k)``; exact zeros stay blank. Of long texts, the first ``MOST_TOKENS`` rows
            and columns suffice.
        queries: Tokens of the rows, all of the text.
        keys: Tokens of the columns, all of the text.
        words: Where words of several tokens begin and end; they are framed.
        marked: Queries whose labels stand out.
    """

    run: str
    title: str
    weights: Array
    queries: Sequence[str]
    keys: Sequence[str]
    words: Sequence[tuple[int, int]] = ()
    marked: Sequence[int] = ()


@styled
def head_pictures(rows: Sequence[Sequence[HeadPicture]]) -> NumberedFigure:
    """Draw heads as matrices, a row of the figure for each row of pictures.

    A row of a matrix is what a token looks at. Whatever is exactly zero is blank. Of long texts the
    first ``MOST_TOKENS`` tokens are shown, and the title says so.
    """
    if not rows or not all(rows):
        raise ValueError(f"head_pictures needs at least one picture in each row; got {rows!r}.")
    rows = [[_cut(picture) for picture in row] for row in rows]
    columns = max(len(row) for row in rows)
    widths = [max(_width(row[j]) for row in rows if j < len(row)) for j in range(columns)]
    heights = [max(_height(picture) for picture in row) for row in rows]
    figure = new_figure(sum(widths) + 0.7, sum(heights))
    grid = figure.subplots(
        len(rows), columns, squeeze=False, width_ratios=widths, height_ratios=heights
    )
    image: AxesImage | None = None
    for i, row in enumerate(rows):
        for j, axes in enumerate(grid[i]):
            if j < len(row):
                image = _draw(axes, row[j])
                figure.numbers += _numbers(row[j])
            else:
                axes.set_axis_off()
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.6, aspect=30, pad=0.02)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["above 0", "25%", "50%", "75%", "100%"])
    bar.set_label("weight (blank: exactly zero)", color=INK, fontsize=8)
    bar.ax.tick_params(labelsize=7, color=GRAY, labelcolor=INK)
    return figure


def _cut(picture: HeadPicture) -> HeadPicture:
    """Return the picture without the tokens that are too many to be read."""
    longest = max(len(picture.queries), len(picture.keys))
    if longest <= MOST_TOKENS:
        return picture
    return HeadPicture(
        run=picture.run,
        title=f"{picture.title}, first {MOST_TOKENS} of {longest} tokens",
        weights=picture.weights[:MOST_TOKENS, :MOST_TOKENS],
        queries=picture.queries[:MOST_TOKENS],
        keys=picture.keys[:MOST_TOKENS],
        words=[word for word in picture.words if word[1] <= MOST_TOKENS],
        marked=[i for i in picture.marked if i < MOST_TOKENS],
    )


def _width(picture: HeadPicture) -> float:
    labels = max((len(shortened(x)) for x in picture.queries), default=1)
    return max(2.2, 0.17 * len(picture.keys) + 0.075 * labels + 0.3)


def _height(picture: HeadPicture) -> float:
    labels = max((len(shortened(x)) for x in picture.keys), default=1)
    return max(1.6, 0.17 * len(picture.queries) + 0.075 * labels + 0.7)


def _draw(axes: Axes, picture: HeadPicture) -> AxesImage:
    q, k = picture.weights.shape
    shown = np.ma.masked_equal(picture.weights, 0)
    image = axes.imshow(
        shown, cmap=_SHADES, vmin=0, vmax=1, interpolation="nearest", aspect="equal"
    )
    axes.set_facecolor("white")
    axes.set_xticks(np.arange(k), labels=[_label(x) for x in picture.keys], rotation=90)
    axes.set_yticks(np.arange(q), labels=[_label(x) for x in picture.queries])
    axes.set_xticks(np.arange(k + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(q + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=_GRID, linewidth=0.4)
    axes.tick_params(which="both", length=0)
    axes.tick_params(labelsize=7, labelcolor=INK, pad=2, top=False, labeltop=False)
    axes.spines[:].set(color=_GRID, linewidth=0.6)
    for i in picture.marked:
        axes.get_yticklabels()[i].set_fontweight("bold")
    for start, stop in picture.words:
        size = stop - start
        frame = Rectangle(
            (start - 0.5, start - 0.5), size, size, fill=False, edgecolor=COLORS[4], linewidth=1.2
        )
        axes.add_patch(frame)
    axes.set_title(literal(f"{picture.run}\n{picture.title}"), color=INK, fontsize=8)
    return image


def _label(token: str) -> str:
    return literal(shortened(token))


def _numbers(picture: HeadPicture) -> list[dict[str, object]]:
    return [
        {
            "run": picture.run,
            "head": picture.title,
            "query": int(i),
            "query token": picture.queries[i],
            "key": int(j),
            "key token": picture.keys[j],
            "weight": float(picture.weights[i, j]),
        }
        for i, j in zip(*np.nonzero(picture.weights), strict=True)
    ]


@styled
def positional_confidence(
    runs: Sequence[Measures], *, kind: str = "encoder", threshold: float = 0.5
) -> NumberedFigure:
    """Draw the weight that heads give to the tokens around them, two to each side (figure 7).

    A point for each head, those of the first layer to the left; those above ``threshold`` are
    counted, with their median.
    """
    runs = [run for run in runs if kind in run.header.kinds]
    if not runs:
        raise ValueError(f"positional_confidence needs a run with {kind} attention; got none.")
    figure = new_figure(2.5 + 1.6 * len(runs), 3.2)
    axes = figure.subplots()
    plain(axes)
    axes.axhline(threshold, color=GRAY, linewidth=0.8, linestyle=(0, (2, 2)))
    for i, run in enumerate(runs):
        name = run_label(run.header)
        for key, offset in OFFSETS.items():
            values = run.values(kind, key)
            heads = [(at, float(x)) for at, x in np.ndenumerate(values) if np.isfinite(x)]
            step = 0.84 / len(runs)
            x = offset + (i - (len(runs) - 1) / 2) * step
            axes.plot(
                [x + step * 0.7 * _beside(layer, len(values)) for (layer, _), _ in heads],
                [value for _, value in heads],
                linestyle="none",
                marker=look_of(i).marker,
                markersize=4,
                color=look_of(i).color,
                markerfacecolor="none",
                label=literal(name) if offset == -2 else None,
            )
            above = [value for _, value in heads if value >= threshold]
            if above:
                note = f"{len(above)}\n{np.median(above):.0%}"
                axes.text(x, 1.03, note, ha="center", va="bottom", fontsize=7, color=INK)
            figure.numbers += [
                {
                    "run": name,
                    "attention": kind,
                    "offset": offset,
                    "layer": layer + 1,
                    "head": head + 1,
                    "weight": value,
                    "above threshold": value >= threshold,
                }
                for (layer, head), value in heads
            ]
    axes.set_xticks(
        list(OFFSETS.values()), labels=[f"{x:+d}" if x else "0" for x in OFFSETS.values()]
    )
    axes.set_ylim(-0.03, 1.18)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("offset of the token looked at", color=INK, fontsize=9)
    axes.set_ylabel("mean weight of each head", color=INK, fontsize=9)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure


def _beside(layer: int, layers: int) -> float:
    """Where a layer stands, from -0.5 to 0.5."""
    return layer / (layers - 1) - 0.5 if layers > 1 else 0.0
