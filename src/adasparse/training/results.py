"""Results of a finished run, as ``results.json`` in its folder holds them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from adasparse.training.recipe import TrainingRecipe

RESULTS = "results.json"


class Results(TypedDict):
    """Content of ``results.json``.

    Args:
        model: Name of the chosen candidate.
        step: Step of the last checkpoint.
        average: Number of checkpoints that the recipe asked to average.
        candidates: Scores of all candidates on development data.
    """

    model: str
    step: int
    average: int
    candidates: dict[str, dict[str, float]]


def is_finished(recipe: TrainingRecipe, step: int) -> bool:
    """Tell whether the model of a run is that of the checkpoint after ``step`` steps."""
    path = Path(recipe.output) / RESULTS
    if not path.is_file():
        return False
    results = read_results(recipe.output)
    return results["step"] == step and results["average"] == recipe.average


def read_results(output: str | Path, *, scores: Sequence[str] = ()) -> Results:
    """Return the results of a finished run.

    Args:
        output: Folder of the run.
        scores: Names of scores that the chosen model must have.

    Raises:
        ValueError: If the file is damaged.
    """
    path = Path(output) / RESULTS
    try:
        results: Results = json.loads(path.read_text(encoding="utf-8"))
        _ = results["step"] + 0, results["average"] + 0
        chosen = results["candidates"][results["model"]]
        missing = [name for name in scores if name not in chosen]
        if missing or not chosen:
            raise ValueError(f"{results['model']} has no {', '.join(missing) or 'scores'}")
        for candidate in results["candidates"].values():
            for score in candidate.values():
                _ = score + 0.0
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged: {error}. Remove it and add --resume to write it again."
        ) from error
    return results
