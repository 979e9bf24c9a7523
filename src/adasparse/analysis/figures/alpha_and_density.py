"""Figures about all heads: alpha, density and diversity. Figures 2 to 6 of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from adasparse.analysis.figures.style import (
    COLORS,
    GRAY,
    INK,
    LINES,
    NumberedFigure,
    kinds_of,
    literal,
    look_of,
    new_figure,
    numbered,
    panels,
    plain,
    run_label,
    styled,
)
from adasparse.analysis.measures.registry import DIVERSITY
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.measures.roles import head_name
from adasparse.analysis.recording.layer_weights import Array
from adasparse.analysis.recording.storage import ModelHeader

_BINS = 20
#: Number of steps of a trajectory that are drawn at most.
_MOST_STEPS = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class AlphaHistory:
    """Trajectory of alpha in the training of a model.

    Args:
        header: Header of the model.
        steps: ``(n,)``.
        alpha: ``(n, h)`` by the name of each attention module.
    """

    header: ModelHeader
    steps: Sequence[int]
    alpha: Mapping[str, Sequence[Sequence[float]]]

    def trajectories(self) -> dict[tuple[str, int, int], Array]:
        """Return alpha ``(n,)`` of each head, by kind of attention, layer and head."""
        return {
            (kind, layer, head): np.array(self.alpha[module], dtype=np.float64)[:, head]
            for kind in self.header.kinds
            for layer, module in enumerate(self.header.modules[kind])
            if module in self.alpha
            for head in range(len(self.alpha[module][0]))
        }


@styled
def alpha_trajectories(histories: Sequence[AlphaHistory]) -> NumberedFigure:
    """Draw alpha of every head over training, with some heads standing out (figure 2).

    Those are the heads that end highest and lowest, fell and rose the most, and moved the most. Of
    a long training, 500 steps are drawn, evenly spaced.
    """
    histories = [history for history in histories if history.trajectories()]
    if not histories:
        raise ValueError("alpha_trajectories needs a run whose log has alpha; got none.")
    figure = new_figure(1.2 + 4.6 * len(histories), 3.6)
    grid = figure.subplots(1, len(histories), squeeze=False, sharey=True)[0]
    for axes, history in zip(grid, histories, strict=True):
        plain(axes)
        found = history.trajectories()
        drawn = _evenly_spaced(len(history.steps))
        steps = np.asarray(history.steps)[drawn].tolist()
        name = run_label(history.header)
        chosen = _stand_out(found)
        for at, alpha in found.items():
            if at not in chosen:
                axes.plot(steps, alpha[drawn], color="#cccccc", linewidth=0.6)
            figure.numbers += [
                {"run": name, "head": head_name(*at), "step": step, "alpha": float(x)}
                for step, x in zip(steps, alpha[drawn], strict=True)
            ]
        for i, at in enumerate(chosen):
            label = head_name(*at)
            axes.plot(
                steps,
                found[at][drawn],
                color=COLORS[i],
                linestyle=LINES[i],
                linewidth=1.8,
                label=label,
            )
        axes.set_title(literal(name), color=INK, fontsize=10)
        axes.set_xlabel("training steps", color=INK, fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.legend(
            fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2
        )
    grid[0].set_ylabel("α", color=INK, fontsize=10)
    return figure


def _evenly_spaced(number: int) -> Array:
    """Return at most ``_MOST_STEPS`` indices below ``number``, the first and the last included."""
    indices: Array = np.linspace(0, number - 1, min(number, _MOST_STEPS)).round().astype(int)
    return indices


def _stand_out(found: dict[tuple[str, int, int], Array]) -> list[tuple[str, int, int]]:
    """Choose by one rank after the other, from different layers as long as there are any."""
    ranks = (
        lambda alpha: alpha[-1],
        lambda alpha: -alpha[-1],
        lambda alpha: alpha[-1] - alpha.min(),
        lambda alpha: alpha[0] - alpha.min(),
        lambda alpha: np.abs(np.diff(alpha)).sum(),
    )
    chosen: list[tuple[str, int, int]] = []
    for rank in ranks:
        left = [at for at in found if at not in chosen]
        new = [at for at in left if at[:2] not in {x[:2] for x in chosen}]
        if left:
            chosen.append(max(new or left, key=lambda at: float(rank(found[at]))))
    return sorted(chosen)


@styled
def alpha_histogram(runs: Sequence[Measures]) -> NumberedFigure:
    """Draw how many heads have which alpha, for each kind of attention (figure 3).

    Of the runs whose heads differ in alpha.
    """
    learned = [(i, run) for i, run in enumerate(runs) if _spread(run) > 1e-6]
    if not learned:
        raise ValueError("alpha_histogram needs a run whose heads differ in alpha; got none.")
    return _histograms(learned, "alpha")


def _spread(run: Measures) -> float:
    alpha = np.concatenate([run.values(kind, "alpha").ravel() for kind in run.header.kinds])
    return float(np.nanmax(alpha) - np.nanmin(alpha))


@styled
def density_histogram(runs: Sequence[Measures]) -> NumberedFigure:
    """Draw how often heads have which density in a sentence (figure 4).

    One count for each head and sentence. Softmax, a single bar at 100%, is left out if other runs
    are there.
    """
    return _histograms(numbered(runs, keep_softmax=False), "density")


def _histograms(runs: Sequence[tuple[int, Measures]], key: str) -> NumberedFigure:
    headers = [run.header for _, run in runs]
    kinds = kinds_of(headers)
    names = [run_label(header) for header in headers]
    figure = new_figure(1.0 + 2.5 * len(runs), 0.6 + 1.6 * len(kinds))
    grid = panels(figure, kinds, names)
    for (number, run), name in zip(runs, names, strict=True):
        for kind in run.header.kinds:
            values = run.values(kind, key) if key == "alpha" else run.by_sentence(kind, key)
            values = values[np.isfinite(values)]
            low, high = (1.0, max(2.0, values.max(initial=2.0))) if key == "alpha" else (0.0, 1.0)
            counts, edges = np.histogram(values, bins=_BINS, range=(low, high))
            axes = grid[kind, name]
            axes.bar(
                edges[:-1],
                counts,
                width=np.diff(edges),
                align="edge",
                color=look_of(number).color,
                edgecolor="white",
                linewidth=0.5,
            )
            axes.set_xlim(low, high)
            figure.numbers += [
                {"run": name, "attention": kind, "from": float(a), "to": float(b), "count": int(n)}
                for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
            ]
    for (kind, _), axes in grid.items():
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        if key == "density":
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        if kind == kinds[-1]:
            axes.set_xlabel("α" if key == "alpha" else "density", color=INK, fontsize=9)
    what = "heads" if key == "alpha" else "heads × sentences"
    figure.supylabel(what, color=GRAY, fontsize=9)
    return figure


@styled
def head_density(runs: Sequence[Measures]) -> NumberedFigure:
    """Draw the density of the heads of each layer, sorted, as lines (figure 5).

    A line joins the heads of the same rank; higher is denser. Softmax, all at 100%, is left out if
    other runs are there.
    """
    shown = numbered(runs, keep_softmax=False)
    headers = [run.header for _, run in shown]
    kinds = kinds_of(headers)
    names = [run_label(header) for header in headers]
    figure = new_figure(1.0 + 2.4 * len(shown), 0.6 + 1.7 * len(kinds))
    grid = panels(figure, kinds, names)
    for (number, run), name in zip(shown, names, strict=True):
        look = look_of(number)
        for kind in run.header.kinds:
            density = np.sort(run.values(kind, "density"), axis=1)
            layers = np.arange(1, len(density) + 1)
            axes = grid[kind, name]
            axes.plot(
                layers,
                density,
                color=look.color,
                linestyle=look.line,
                marker=look.marker,
                markersize=3,
                linewidth=1,
            )
            order = run.values(kind, "density").argsort(axis=1)
            figure.numbers += [
                {
                    "run": name,
                    "attention": kind,
                    "layer": layer,
                    "rank": rank + 1,
                    "head": int(order[layer - 1, rank]) + 1,
                    "density": float(density[layer - 1, rank]),
                }
                for layer in layers.tolist()
                for rank in range(density.shape[1])
            ]
    for (kind, _), axes in grid.items():
        _show_layers(axes)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        if kind == kinds[-1]:
            axes.set_xlabel("layer", color=INK, fontsize=9)
    figure.supylabel("density", color=GRAY, fontsize=9)
    return figure


def _show_layers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.margins(x=0.08)


@styled
def head_diversity(runs: Sequence[Measures]) -> NumberedFigure:
    """Draw the Jensen-Shannon divergence of the heads of each layer (figure 6).

    Bands are 95% confidence intervals by bootstrap over sentences.
    """
    kinds = kinds_of([run.header for run in runs])
    figure = new_figure(5.2, 0.9 + 1.7 * len(kinds))
    grid = figure.subplots(len(kinds), 1, squeeze=False)[:, 0]
    for kind, axes in zip(kinds, grid, strict=True):
        plain(axes)
        for i, run in enumerate(runs):
            if kind not in run.header.kinds:
                continue
            value = run.values(kind, DIVERSITY)[:, 0]
            low, high = run.intervals(kind, DIVERSITY)[:, 0].T
            layers = np.arange(1, len(value) + 1)
            look, name = look_of(i), run_label(run.header)
            axes.fill_between(layers, low, high, color=look.color, alpha=0.18, linewidth=0)
            axes.plot(
                layers,
                value,
                color=look.color,
                linestyle=look.line,
                marker=look.marker,
                markersize=5,
                linewidth=1.6,
                label=literal(name),
            )
            figure.numbers += [
                {
                    "run": name,
                    "attention": kind,
                    "layer": int(layer),
                    "diversity": float(v),
                    "low": float(a),
                    "high": float(b),
                }
                for layer, v, a, b in zip(layers, value, low, high, strict=True)
            ]
        _show_layers(axes)
        axes.set_ylabel(kind, color=INK, fontsize=9)
    grid[-1].set_xlabel("layer", color=INK, fontsize=9)
    figure.supylabel("Jensen-Shannon divergence", color=GRAY, fontsize=9)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure
