"""Sweeps: one task with several kinds of attention, positions and seeds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adasparse.longcontext.config import AttentionKind, PositionKind
from adasparse.longcontext.recipe import TaskRecipe
from adasparse.longcontext.task_eval import EVALUATION, evaluate_run, read_evaluation
from adasparse.longcontext.train import train_task
from adasparse.training import ProgressBar
from adasparse.training.run_folder import RECIPE


def sweep_recipes(
    recipe: TaskRecipe,
    *,
    attentions: Sequence[AttentionKind],
    positions: Sequence[PositionKind],
    seeds: Sequence[int],
) -> list[TaskRecipe]:
    """Return a recipe for each combination, its output in a folder of its own in ``output``."""
    return [
        replace(
            recipe,
            attention=attention,
            positions=kind,
            seed=seed,
            output=str(Path(recipe.output) / f"{recipe.task}-{attention}-{kind}-{seed}"),
        )
        for attention in attentions
        for kind in positions
        for seed in seeds
    ]


def run_one(
    recipe: TaskRecipe,
    lengths: Sequence[int],
    *,
    examples: int,
    report: Callable[[str], None] = lambda message: None,
    progress: ProgressBar | None = None,
) -> dict[str, Any]:
    """Train and score one run of a sweep; return its evaluation.

    Finished work is not repeated: training resumes where it was interrupted.

    Args:
        recipe: Recipe of the training.
        lengths: Lengths to score.
        examples: Number of examples at each length.
        report: Called with messages for the user.
        progress: Progress display; nothing is shown if None.

    Raises:
        TrainingStopped: If it was interrupted.
    """
    folder = Path(recipe.output)
    train_task(recipe, resume=(folder / RECIPE).is_file(), report=report, progress=progress)
    path, trained = folder / EVALUATION, folder / "results.json"
    if path.is_file() and path.stat().st_mtime_ns > trained.stat().st_mtime_ns:
        found = read_evaluation(path)
        if _covers(found, lengths, examples):
            return found
    return evaluate_run(folder, lengths, examples=examples)


def _covers(evaluation: dict[str, Any], lengths: Sequence[int], examples: int) -> bool:
    """Tell whether an evaluation has all of these lengths, or all that memory allowed."""
    scores = evaluation["scores"]
    done = {score["length"] for score in scores if score["examples"] == examples}
    missing = set(lengths) - done
    return not missing or bool(done and evaluation["stopped"] and min(missing) > max(done))


def read_evaluations(folder: str | Path) -> list[dict[str, Any]]:
    """Return the evaluations of all runs of tasks in a folder, or of the one run that it is."""
    folder = Path(folder)
    paths = [folder / EVALUATION, *sorted(folder.glob(f"*/{EVALUATION}"))]
    every = [read_evaluation(path) for path in paths if path.is_file()]
    found = [each for each in every if "task" in each]  # language models have others
    if not found:
        raise ValueError(
            f"A sweep must be a folder of runs of tasks with their evaluations; there is no "
            f"{EVALUATION} of any in {folder} or in the folders in it."
        )
    return found
