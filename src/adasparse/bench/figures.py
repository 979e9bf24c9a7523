"""Time and memory of attention against length, as figures. Needs matplotlib."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from adasparse.bench.calls import BOTH, OURS, PACKAGE, SOFTMAX
from adasparse.bench.results import Result

#: Each function's label and color; the colors differ for every kind of eye.
STYLES = {
    OURS: ("adasparse, α = 1.5", "#0072b2"),
    SOFTMAX: ("torch SDPA, softmax", "#d55e00"),
    PACKAGE: ("entmax package, α = 1.5", "#009e73"),
}
INK, GRAY, FAINT = "#333333", "#8a8a8a", "#e6e6e6"
#: Labels keep this share of the height between them.
LABEL_GAP = 0.06


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points to be joined by a line, with a label at its end."""

    lengths: list[int]
    values: list[float]
    label: str
    color: str
    look: dict[str, Any]


def draw(result: Result) -> dict[str, Figure]:
    """Draw every figure of a result of ``adasparse bench lengths`` or ``decode``, by name."""
    if result["benchmark"] == "decode":
        return {"time": time_per_token(result)}
    if result["benchmark"] != "lengths":
        raise ValueError(
            f"figures need a result of 'decode' or 'lengths'; got one of {result['benchmark']!r}."
        )
    return {"time": time(result), "memory": memory(result)}


def time_per_token(result: Result) -> Figure:
    """Draw the time of one query per head against the number of keys."""
    rows = [row for row in result["results"] if row["case"].startswith("heads-")]
    if not rows:
        raise ValueError("the figure needs the cases 'heads-…' of decoding; got none of them.")
    looks = (
        ("packed", "ms", "adasparse, packed keys", "#0072b2"),
        ("plain", "ms", "adasparse, plain keys", "#56b4e9"),
        ("plain", "baseline_ms", *STYLES[SOFTMAX]),
    )
    curves = [
        Curve(
            lengths=[row["shape"][2] for row in rows if row["keys"] == keys],
            values=[row[measure] for row in rows if row["keys"] == keys],
            label=label,
            color=color,
            look={"marker": "o", "markersize": 4, "linewidth": 2},
        )
        for keys, measure, label, color in looks
    ]
    return _figure(
        [curve for curve in curves if curve.lengths],
        title="Time of attention for one token, against the length of the context",
        result=result,
        base=10,
        unit=_seconds,
    )


def time(result: Result) -> Figure:
    """Draw the time of forward and backward against length."""
    return _figure(
        _curves(result, "ms"), title=f"Time of {BOTH}", result=result, base=10, unit=_seconds
    )


def memory(result: Result) -> Figure:
    """Draw the peak of memory against length, and what dense weights alone would take."""
    curves = _curves(result, "gib")
    b, h, _, _ = result["results"][0]["shape"]
    lengths = sorted({row["shape"][2] for row in result["results"]})
    curves.append(
        Curve(
            lengths=lengths,
            values=[b * h * length**2 * 4 / 2**30 for length in lengths],
            label="dense weights alone",
            color=GRAY,
            look={"linestyle": (0, (2, 2)), "linewidth": 1.2},
        )
    )
    title = f"Peak memory of {BOTH}, beyond the inputs"
    return _figure(curves, title=title, result=result, base=8, unit=_bytes)


def encode(figure: Figure, file_format: str) -> bytes:
    """Render the figure: the same bytes for the same numbers."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if file_format == "svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "adasparse"}):
        figure.savefig(buffer, format=file_format, metadata=metadata, dpi=150)
    return buffer.getvalue()


def _curves(result: Result, measure: str) -> list[Curve]:
    curves = []
    for name, (label, color) in STYLES.items():
        rows = [r for r in result["results"] if r["name"] == name and r[measure] is not None]
        if rows:
            curves.append(
                Curve(
                    lengths=[row["shape"][2] for row in rows],
                    values=[row[measure] for row in rows],
                    label=label,
                    color=color,
                    look={"marker": "o", "markersize": 4, "linewidth": 2},
                )
            )
    return curves


def _figure(
    curves: list[Curve], *, title: str, result: Result, base: int, unit: Callable[[float], str]
) -> Figure:
    figure = Figure(figsize=(7, 4), facecolor="white")
    axes = figure.add_axes((0.1, 0.12, 0.65, 0.7))
    axes.set(xscale="log", yscale="log")
    for curve in curves:
        axes.plot(curve.lengths, curve.values, color=curve.color, **curve.look)
    axes.xaxis.set_major_locator(FixedLocator(sorted({n for c in curves for n in c.lengths})))
    axes.xaxis.set_major_formatter(lambda length, _: _tokens(length))
    axes.yaxis.set_major_locator(LogLocator(base=base))
    axes.yaxis.set_major_formatter(lambda value, _: unit(value))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRAY)
    axes.tick_params(length=0, colors=INK, labelsize=9)
    axes.set_xlabel("tokens", color=INK, fontsize=9)
    _add_labels(axes, curves)
    _add_titles(figure, title, result)
    return figure


def _add_labels(axes: Axes, curves: list[Curve]) -> None:
    """Write each label next to the end of its line; those of one length make room for each other.

    A line that ends early has its label above: to the right, others may pass.
    """
    axes.margins(y=0.08)
    axes.autoscale_view()
    as_shares = axes.transScale + axes.transLimits  # from data to shares of width and height
    last = max(curve.lengths[-1] for curve in curves)
    lowest = -math.inf
    for curve in sorted(curves, key=lambda curve: curve.values[-1]):
        x, y = as_shares.transform((curve.lengths[-1], curve.values[-1]))
        if curve.lengths[-1] == last:
            x, y, side = x + 0.02, max(y, lowest), "left"
            lowest = y + LABEL_GAP
        else:
            x, y, side = x + 0.01, y + LABEL_GAP, "right"
        axes.text(
            x,
            y,
            curve.label,
            transform=axes.transAxes,
            color=curve.color,
            fontsize=9,
            horizontalalignment=side,
            verticalalignment="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )


def _add_titles(figure: Figure, title: str, result: Result) -> None:
    machine, (_, h, _, d) = result["machine"], result["results"][0]["shape"]
    conditions = f"{h} heads of size {d}, float32, {machine['cpu']}, {machine['threads']} threads"
    figure.text(0.02, 0.95, title, color=INK, fontsize=11, weight="bold", va="center")
    figure.text(0.02, 0.885, conditions, color=GRAY, fontsize=9, va="center")


def _tokens(length: float) -> str:
    return f"{length:.0f}" if length < 1024 else f"{length / 1024:.0f}k"


def _seconds(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def _bytes(gib: float) -> str:
    """A power of eight in the largest unit of which it is at least one."""
    units = {1.0: "GiB", 2.0**-10: "MiB", 2.0**-20: "KiB"}
    size, name = next(((s, n) for s, n in units.items() if gib >= 0.99 * s), (2.0**-20, "KiB"))
    return f"{gib / size:.0f} {name}"
