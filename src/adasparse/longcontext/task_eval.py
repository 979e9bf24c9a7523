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
from adasparse.training.loading import read_json

EVALUATION = "eval.json"
#: Entries of a score between 0 and 1.
_SHARES = ("exact_match", "exact_low", "exact_high", "token_accuracy")


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


def read_evaluation(path: Path) -> dict[str, Any]:
    """Return the content of an ``eval.json``, of a task or of a language model.

    Raises:
        ValueError: If it is damaged.
    """
    found = read_json(path)
    if "task" in found and not _is_whole(found):
        raise ValueError(
            f"{path} is damaged: entries are missing or of another type. Remove it and score the "
            "run again."
        )
    return found


def _is_whole(evaluation: dict[str, Any]) -> bool:
    """Tell whether an evaluation of a task has what is read from it."""
    try:
        names = [evaluation[x] for x in ("task", "attention", "positions")]
        reason, scores = evaluation["stopped"], evaluation["scores"]
        counts = [evaluation["train_length"]]
        counts += [score[x] for score in scores for x in ("length", "examples")]
        shares = [score[x] for score in scores for x in _SHARES]
        seconds = [score["seconds"] for score in scores]
    except (LookupError, TypeError):
        return False
    return (
        all(isinstance(x, str) for x in names)
        and isinstance(reason, str | None)
        and all(type(x) is int and 0 < x < 2**63 for x in counts)
        and all(type(x) in (int, float) for x in shares + seconds)
        and all(0 <= x <= 1 for x in shares)
    )
