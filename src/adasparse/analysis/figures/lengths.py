"""Accuracy of long-context models against length."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from adasparse.analysis.figures.style import (
    GRAY,
    INK,
    NumberedFigure,
    look_of,
    new_figure,
    plain,
    styled,
)
from adasparse.longcontext.metrics import wilson_interval

#: Successes and trials by length.
_Counts = dict[int, tuple[int, int]]


@styled
def accuracy_by_length(evaluations: Sequence[Mapping[str, Any]]) -> NumberedFigure:
    """Draw exact match against length, a panel for each task and a line for each method.

    A method is an attention with its positions. Examples of all its seeds count together, and the
    band is the 95% interval (Wilson) of their share.

    Args:
        evaluations: Contents of ``eval.json`` of each run.
    """
    if not evaluations:
        raise ValueError("accuracy_by_length needs an evaluation; got none.")
    tasks = sorted({str(each["task"]) for each in evaluations})
    methods = sorted({_method(each) for each in evaluations})
    figure = new_figure(1.4 + 3.8 * len(tasks), 3.4)
    grid = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(grid, tasks, strict=True):
        of_task = [each for each in evaluations if each["task"] == task]
        _dress(axes, task, of_task)
        for number, method in enumerate(methods):
            runs = [each for each in of_task if _method(each) == method]
            if runs:
                figure.numbers += _draw(axes, number, task, method, runs)
    grid[0].set_ylabel("exact match", color=INK, fontsize=9)
    lines = {str(x.get_label()): x for axes in grid for x in axes.get_lines()}
    figure.legend(
        [lines[method] for method in methods],
        methods,
        frameon=False,
        fontsize=8,
        loc="outside right upper",
    )
    return figure


def _method(evaluation: Mapping[str, Any]) -> str:
    return f"{evaluation['attention']} + {evaluation['positions']}"


def _pooled(runs: Sequence[Mapping[str, Any]]) -> _Counts:
    """Count the examples of all seeds."""
    counts: _Counts = defaultdict(lambda: (0, 0))
    for run in runs:
        for score in run["scores"]:
            right, trials = counts[score["length"]]
            right += round(score["exact_match"] * score["examples"])
            counts[score["length"]] = right, trials + score["examples"]
    return dict(sorted(counts.items()))


def _draw(
    axes: Axes, number: int, task: str, method: str, runs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Draw the line of a method; return its points."""
    rows: list[dict[str, Any]] = []
    for length, (right, trials) in _pooled(runs).items():
        low, high = wilson_interval(right, trials)
        rows.append(
            {
                "task": task,
                "method": method,
                "seeds": len(runs),
                "length": length,
                "examples": trials,
                "exact_match": right / trials,
                "low": low,
                "high": high,
            }
        )
    look = look_of(number)
    lengths = [row["length"] for row in rows]
    axes.fill_between(
        lengths,
        [row["low"] for row in rows],
        [row["high"] for row in rows],
        color=look.color,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(
        lengths,
        [row["exact_match"] for row in rows],
        color=look.color,
        linestyle=look.line,
        marker=look.marker,
        markersize=4,
        label=method,
    )
    return rows


def _dress(axes: Axes, task: str, runs: Sequence[Mapping[str, Any]]) -> None:
    plain(axes)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({score["length"] for run in runs for score in run["scores"]}))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.tick_params(axis="x", rotation=45)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(-0.03, 1.03)
    axes.set_title(task, color=INK, fontsize=10)
    axes.set_xlabel("length", color=INK, fontsize=9)
    for length in {run["train_length"] for run in runs}:
        axes.axvline(length, color=GRAY, linewidth=0.8, linestyle=(0, (2, 2)))
