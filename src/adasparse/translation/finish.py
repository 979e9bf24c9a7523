"""The end of a training: which weights to keep, and a folder that anyone can load."""

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import load_file
from transformers import PreTrainedModel

from adasparse.training.checkpoints import average_checkpoints, checkpoints
from adasparse.training.files import write_text
from adasparse.training.run import CHECKPOINTS
from adasparse.translation.card import model_card
from adasparse.translation.data import PreparedData
from adasparse.translation.recipe import TranslationRecipe

RESULTS = "results.json"
_AVERAGE = "average.safetensors"


class Scorer(Protocol):
    """Scores a model on development data."""

    def scores(self, model: PreTrainedModel) -> dict[str, float]:
        """Return loss, BLEU and chrF."""
        ...


def finish_run(
    model: PreTrainedModel,
    recipe: TranslationRecipe,
    data: PreparedData,
    scorer: Scorer,
    *,
    best_step: int | None,
) -> dict[str, Any]:
    """Save the better of the best checkpoint and the average of the last ones, with a model card.

    Returns:
        What ``results.json`` says: ``model``, the name of the candidate that was taken, and the
        scores of all ``candidates`` on development data.
    """
    output = Path(recipe.output)
    folder = output / CHECKPOINTS
    found = checkpoints(folder)
    weights = {"last": found[-1] / "model.safetensors"}
    if best_step is not None:
        weights["best"] = folder / f"checkpoint-{best_step}" / "model.safetensors"
    last = found[-recipe.average :] if recipe.average > 1 else []
    if len(last) > 1:
        average_checkpoints(last, folder / _AVERAGE)
        weights[f"average of {len(last)}"] = folder / _AVERAGE
    candidates = {}
    for name, path in weights.items():
        _load(model, path)
        candidates[name] = scorer.scores(model)
    sign = 1 if recipe.monitor == "bleu" else -1
    chosen = max(candidates, key=lambda name: sign * candidates[name][recipe.monitor])
    _load(model, weights[chosen])
    (folder / _AVERAGE).unlink(missing_ok=True)
    results = {"model": chosen, "step": int(found[-1].name.split("-")[1]), "candidates": candidates}
    _save(output, model, recipe, data, results)
    return results


def _load(model: PreTrainedModel, path: Path) -> None:
    """Put weights into a model; tied ones and fixed positions are not in the file."""
    unexpected = model.load_state_dict(load_file(path), strict=False).unexpected_keys
    assert not unexpected, unexpected


def _save(
    output: Path,
    model: PreTrainedModel,
    recipe: TranslationRecipe,
    data: PreparedData,
    results: dict[str, Any],
) -> None:
    """Write the files of the model elsewhere, then move each to its place."""
    staging = output / ".model.partial"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        model.save_pretrained(staging)
        data.tokenizer.save_pretrained(staging)
        write_text(staging / RESULTS, json.dumps(results, indent=2))
        write_text(staging / "README.md", model_card(model, recipe, data, results))
        for path in staging.iterdir():
            path.replace(output / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
