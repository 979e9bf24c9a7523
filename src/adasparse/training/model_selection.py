"""The end of a training: which weights to keep, and a folder that anyone can load."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from transformers import PreTrainedModel

from adasparse.training.checkpoints import (
    average_checkpoints,
    checkpoint_step,
    checkpoints,
    is_intact,
    regular,
)
from adasparse.training.files import write_text
from adasparse.training.folder import CHECKPOINTS
from adasparse.training.monitor import BestModel
from adasparse.training.trainer import Scorer

RESULTS = "results.json"
_WEIGHTS, _AVERAGE = "model.safetensors", "average.safetensors"

#: Without its configuration a folder is no model; without its results a run is not finished.
_LAST = {"config.json": 1, RESULTS: 2}


def is_finished(recipe: Any, step: int) -> bool:
    """Tell whether the model of a run is that of the checkpoint after ``step`` steps."""
    path = Path(recipe.output) / RESULTS
    if not path.is_file():
        return False
    results = json.loads(path.read_text(encoding="utf-8"))
    return bool(results["step"] == step and results["average"] == recipe.average)


def finish_run(
    model: PreTrainedModel,
    recipe: Any,
    scorer: Scorer,
    *,
    best: BestModel,
    tokenizer: Any,
    card: Callable[[PreTrainedModel, dict[str, Any]], str],
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Save the best of last checkpoint, best checkpoint and average of the last, with a model card.

    Args:
        model: Gets the weights of each.
        recipe: How it was trained: ``output``, ``average`` and ``save_steps`` of it count.
        scorer: Scores on development data, which decide.
        best: Which checkpoint was the best, by which score.
        tokenizer: Saved with the model, unless None.
        card: Makes the model card of a model and its results.
        report: Gets a message for each damaged checkpoint.

    Returns:
        What ``results.json`` says: ``model``, the name of the candidate that was taken, ``step``,
        and the scores of all ``candidates`` on development data.
    """
    output = Path(recipe.output)
    folder = output / CHECKPOINTS
    weights, step = _candidates(folder, recipe, best.step, report)
    candidates = {}
    for name, path in weights.items():
        _load(model, path)
        candidates[name] = scorer.scores(model)
    sign, metric = 1 if best.is_better_high else -1, best.metric.removeprefix("eval_")
    chosen = max(candidates, key=lambda name: sign * candidates[name][metric])
    _load(model, weights[chosen])
    (folder / _AVERAGE).unlink(missing_ok=True)
    results = {
        "model": chosen,
        "step": step,
        "average": recipe.average,
        "candidates": candidates,
    }
    _save(output, model, tokenizer, card(model, results), results)
    return results


def _candidates(
    folder: Path, recipe: Any, best_step: int | None, report: Callable[[str], None]
) -> tuple[dict[str, Path], int]:
    """Return the weights to choose from, by name, and the step of the last checkpoint."""
    found = []
    for path in checkpoints(folder):
        if is_intact(path):
            found.append(path)
        else:
            report(f"{path.name} is damaged and is not used.")
    last = found[-1]
    weights = {"last": last / _WEIGHTS}
    best = folder / f"checkpoint-{best_step}"
    if best in found and best != last:
        weights["best"] = best / _WEIGHTS
    averaged = regular(found, every=recipe.save_steps)[-recipe.average :]
    if recipe.average > 1 and len(averaged) > 1:
        average_checkpoints(averaged, folder / _AVERAGE)
        weights[f"average of {len(averaged)}"] = folder / _AVERAGE
    return weights, checkpoint_step(last)


def _load(model: PreTrainedModel, path: Path) -> None:
    """Put weights into a model; tied ones and fixed positions are not in the file."""
    unexpected = model.load_state_dict(load_file(path), strict=False).unexpected_keys
    assert not unexpected, unexpected


def _save(
    output: Path,
    model: PreTrainedModel,
    tokenizer: Any,
    card: str,
    results: dict[str, Any],
) -> None:
    """Write the files of the model elsewhere, then move each to its place, the results last."""
    staging = output / ".model.partial"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        write_text(staging / "README.md", card)
        write_text(staging / RESULTS, json.dumps(results, indent=2))
        (output / RESULTS).unlink(missing_ok=True)
        for path in sorted(staging.iterdir(), key=lambda path: _LAST.get(path.name, 0)):
            path.replace(output / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
