"""Evaluation of a run on its task, at growing lengths; kept in the folder of the run."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adasparse._files import write_atomically
from adasparse.longcontext.length_scores import LengthScore, evaluate_lengths
from adasparse.longcontext.recipe import TaskRecipe
from adasparse.longcontext.runs import load_task_run
from adasparse.longcontext.tasks import find_task

EVALUATION = "eval.json"


def length_multiples(recipe: TaskRecipe, max_factor: int) -> list[int]:
    """Return 1, 2, 4 … up to ``max_factor`` times the longest source that a recipe trains with."""
    return [recipe.lengths[1] * 2**i for i in range(max_factor.bit_length())]


def evaluate_run(
    run: str | Path,
    lengths: Sequence[int],
    *,
    examples: int = 100,
    memory_limit: int | None = None,
    on_score: Callable[[LengthScore], object] | None = None,
) -> dict[str, Any]:
    """Score the model of a run at every length; return what ``eval.json`` in its folder says.

    Args:
        run: Folder of a training on a task.
        lengths: Lengths of the source, in any order.
        examples: Number of examples at each length.
        memory_limit: Bytes that a pass may take; what the machine has left if None.
        on_score: Called with each score when it is there.

    Returns:
        ``task``, ``attention``, ``positions``, ``seed``, ``train_length``, the ``scores`` of all
        lengths that could be run, and ``stopped``, why there are no more, or None.
    """
    model, recipe = load_task_run(run)
    task = find_task(recipe.task)
    if min(lengths) < task.shortest:
        raise ValueError(
            f"lengths must be at least {task.shortest} for {task.name}; got {min(lengths)}."
        )
    found = evaluate_lengths(
        model,
        task,
        lengths,
        examples=examples,
        memory_limit=memory_limit,
        on_score=on_score,
    )
    result = {
        "task": task.name,
        "attention": recipe.attention,
        "positions": recipe.positions,
        "seed": recipe.seed,
        "train_length": recipe.lengths[1],
        "scores": [asdict(score) for score in found.scores],
        "stopped": found.stopped,
    }
    write_atomically(Path(run) / EVALUATION, json.dumps(result, indent=2))
    return result
