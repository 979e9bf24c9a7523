"""Draws the pictures of "How the kernels work": python docs/pictures.py."""

from pathlib import Path

import matplotlib
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from adasparse import entmax

matplotlib.use("svg")
plt.rcParams.update({"svg.hashsalt": "adasparse", "svg.fonttype": "path", "font.size": 10})
FOLDER = Path(__file__).parent / "pictures"
COLORS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52")


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def draw_maps() -> Figure:
    """Weights of the same ten scores for four exponents."""
    scores = torch.linspace(2, -2.5, 10)
    figure, panels = plt.subplots(1, 4, figsize=(9, 2.3), sharey=True)
    for axes, alpha, color in zip(panels, (1.0, 1.25, 1.5, 2.0), COLORS, strict=True):
        weights = entmax(scores, alpha)
        axes.bar(range(10), weights, color=color)
        zero = [i for i in range(10) if weights[i] == 0]
        axes.plot(zero, [0.012] * len(zero), "x", color="gray", markersize=4)
        axes.set_title(f"α = {alpha:g}: {10 - len(zero)} of 10")
        axes.set_xticks([])
        _bare(axes)
    panels[0].set_ylabel("weight")
    figure.tight_layout()
    return figure


def draw_support() -> Figure:
    """A row of scores with its largest one, the window below it, and the support."""
    torch.manual_seed(0)
    scores = torch.randn(220)
    weights = entmax(scores, 1.5)
    top = float(scores.max())
    # At alpha = 1.5 a weight is (1 + (s - c) / 2)^2, so any weight that is not zero gives c.
    best = int(scores.argmax())
    c = float(scores[best] - 2 * (weights[best].sqrt() - 1))
    figure, axes = plt.subplots(figsize=(9, 2.8))
    place = torch.arange(len(scores))
    dropped, candidate, kept = scores < top - 2, (scores >= top - 2) & (weights == 0), weights > 0
    for where, color, label in (
        (dropped, "#bbbbbb", "dropped after one pass"),
        (candidate, COLORS[1], "candidates, weight zero"),
        (kept, COLORS[2], "support"),
    ):
        axes.scatter(place[where], scores[where], s=14, color=color, label=label)
    for height, text, side in (
        (top, "max", "center"),
        (top - 2, "max − 1/ε", "top"),
        (c - 2, "c − 1/ε", "bottom"),
    ):
        axes.axhline(height, color="black", linewidth=0.7, linestyle="--")
        axes.text(len(scores) + 3, height, text, va=side)
    axes.set_ylabel("score")
    axes.set_xlabel("key")
    axes.set_xlim(-2, len(scores) + 2)
    axes.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 1.0))
    _bare(axes)
    figure.tight_layout()
    return figure


def draw_pipeline() -> Figure:
    """The five steps of the forward pass, with the data between them."""
    figure, axes = plt.subplots(figsize=(9, 1.9))
    steps = (
        ("pack", "keys into\npanels of 32"),
        ("score", "strip of queries\n× panels, in L2"),
        ("select", "candidates above\nmax − 1/ε"),
        ("solve", "Newton for c\non candidates"),
        ("gather", "few rows of V;\nsave the support"),
    )
    for i, (name, text) in enumerate(steps):
        box = FancyBboxPatch(
            (i * 2, 0), 1.6, 1, boxstyle="round,pad=0.05", facecolor="#eef2f8", edgecolor=COLORS[0]
        )
        axes.add_patch(box)
        axes.text(i * 2 + 0.8, 0.78, name, ha="center", va="center", weight="bold")
        axes.text(i * 2 + 0.8, 0.34, text, ha="center", va="center", fontsize=9)
        if i:
            axes.annotate(
                "",
                (i * 2 - 0.07, 0.5),
                (i * 2 - 0.33, 0.5),
                arrowprops={"arrowstyle": "->", "color": "#555555"},
            )
    axes.set_xlim(-0.1, 9.75)
    axes.set_ylim(-0.15, 1.15)
    axes.axis("off")
    figure.tight_layout()
    return figure


def main() -> None:
    """Write every picture as SVG."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (draw_maps, draw_support, draw_pipeline):
        name = draw.__name__.removeprefix("draw_")
        draw().savefig(FOLDER / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
