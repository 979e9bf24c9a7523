"""Style of figures, and files of figures with the numbers that they show."""

import csv
import io
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from adasparse._files import write_atomically
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.recording.storage import ModelHeader

INK, GRAY, FAINT = "#333333", "#8a8a8a", "#e4e4e4"
#: Colors of Okabe and Ito, which differ for every kind of eye, light and dark by turns.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
#: Line styles, to be distinguished without color.
LINES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 3)), "solid")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

KIND_TITLES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "context": "context attention",
}
#: Fonts tried in this order for each character, where they are installed.
_FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "IPAGothic", "Noto Sans Arabic")
_LONGEST_TOKEN = 14

Given = ParamSpec("Given")


class NumberedFigure(Figure):
    """A figure and the numbers that it shows, ``numbers``, a dictionary for each point."""

    numbers: list[dict[str, Any]]


def new_figure(width: float, height: float) -> NumberedFigure:
    """Return an empty figure of a size in inches."""
    figure = NumberedFigure(figsize=(width, height), facecolor="white", layout="constrained")
    figure.numbers = []
    return figure


def settings() -> Any:
    """Return the settings under which figures are rendered."""
    installed = {font.name for font in fontManager.ttflist}
    return {
        "font.family": [name for name in _FONTS if name in installed] or ["sans-serif"],
        "svg.fonttype": "none",
        "svg.hashsalt": "adasparse",
    }


def styled(draw: Callable[Given, NumberedFigure]) -> Callable[Given, NumberedFigure]:
    """Have a function draw with the fonts and settings of figures here, for as long as it runs."""

    @wraps(draw)
    def drawn(*args: Given.args, **kwargs: Given.kwargs) -> NumberedFigure:
        with matplotlib.rc_context(settings()):
            return draw(*args, **kwargs)

    return drawn


def render(figure: Figure, file_format: str) -> bytes:
    """Return the figure as a file: the same bytes for the same numbers."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if file_format == "svg" else {}
    with matplotlib.rc_context(settings()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=file_format, metadata=metadata, dpi=150)
    return buffer.getvalue()


def save_figure(figure: NumberedFigure, path_stem: str | Path) -> list[Path]:
    """Write a figure as SVG and PNG, and its numbers as CSV; return the three paths."""
    return write_figure_files(figure_files(figure), path_stem)


def figure_files(figure: NumberedFigure) -> dict[str, bytes]:
    """Return the contents of the files of a figure, by ending: SVG, PNG, and numbers as CSV."""
    images = {kind: render(figure, kind) for kind in ("svg", "png")}
    return {**images, "csv": _csv(figure.numbers).encode()}


def write_figure_files(files: Mapping[str, bytes], path_stem: str | Path) -> list[Path]:
    """Write the files of a figure, whose names differ in their endings; return the paths."""
    stem = Path(path_stem)
    paths = {ending: stem.with_name(f"{stem.name}.{ending}") for ending in files}
    for ending, path in paths.items():
        write_atomically(path, files[ending], make_folders=True)
    return list(paths.values())


def _csv(numbers: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in numbers for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: f"{x:.6g}" if isinstance(x, float) else x for key, x in row.items()}
        for row in numbers
    )
    return text.getvalue()


def plain(axes: Axes) -> None:
    """Take away what says nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRAY)
    axes.tick_params(color=GRAY, labelcolor=INK, labelsize=8)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def panels(
    figure: NumberedFigure, rows: Sequence[str], columns: Sequence[str]
) -> dict[tuple[str, str], Axes]:
    """Return plain axes by row and column, with titles above the columns and beside the rows."""
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex="row", sharey="row")
    found = {}
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = found[row, column] = grid[i][j]
            plain(axes)
            if i == 0:
                axes.set_title(literal(column), color=INK, fontsize=10)
            if j == 0:
                axes.set_ylabel(KIND_TITLES[row], color=INK, fontsize=8.5)
    return found


def literal(text: str) -> str:
    """Return a text that is drawn as it is, dollar signs included."""
    return text.replace("$", r"\$")


def run_label(header: ModelHeader) -> str:
    """Return what a run is called in figures."""
    return shortened(header.name, 28)


@dataclass(frozen=True, kw_only=True)
class Look:
    """The look of a run in every figure."""

    color: str
    line: Any
    marker: str


def look_of(number: int) -> Look:
    """Return the look of the run of this number."""
    return Look(
        color=COLORS[number % len(COLORS)],
        line=LINES[number % len(LINES)],
        marker=MARKERS[number % len(MARKERS)],
    )


def numbered(runs: Sequence[Measures], *, keep_softmax: bool) -> list[tuple[int, Measures]]:
    """Return runs and their numbers; without softmax, which has no zeros, if others are there."""
    every = list(enumerate(runs))
    sparse = [(i, run) for i, run in every if run.header.attention != "softmax"]
    return every if keep_softmax or not sparse else sparse


def kinds_of(headers: Sequence[ModelHeader]) -> list[str]:
    """Return the kinds of attention that any of the runs has, in order."""
    return [kind for kind in KIND_TITLES if any(kind in header.kinds for header in headers)]


def shortened(text: str, longest: int = _LONGEST_TOKEN) -> str:
    """Return a text as it can stand at an axis: not too long, without control characters."""
    visible = "".join(
        "·" if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in text
    )
    return visible if len(visible) <= longest else visible[: longest - 1] + "…"
