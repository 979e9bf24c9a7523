"""Selection of the final model of a run, and its files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adasparse._files import write_atomically
from adasparse.training.callbacks import BestModel
from adasparse.training.checkpoints import (
    average_checkpoints,
    checkpoint_step,
    checkpoints,
    is_intact,
    regular,
    use_default_permissions,
)
from adasparse.training.recipe import TrainingRecipe
from adasparse.training.results import RESULTS, Results
from adasparse.training.run_folder import CHECKPOINTS, MODEL_STAGING, Report
from adasparse.training.trainer import Scorer

_WEIGHTS, _AVERAGE = "model.safetensors", "average.safetensors"

#: Without its configuration a folder is no model; without its results a run is not finished.
_LAST = {"config.json": 1, RESULTS: 2}


def finish_run(
    model: PreTrainedModel,
    recipe: TrainingRecipe,
    scorer: Scorer,
    *,
    best: BestModel,
    tokenizer: PreTrainedTokenizerBase | None,
    card: Callable[[PreTrainedModel, Results], str],
    report: Report,
) -> Results:
    """Save the best of last checkpoint, best checkpoint and average of the last, with a model card.

    Args:
        model: Receives the weights of each.
        recipe: Settings; ``output``, ``average`` and ``save_steps`` are used.
        scorer: Scores on development data, which decide.
        best: The best checkpoint and its score.
        tokenizer: Tokenizer to save with the model, unless None.
        card: Returns the model card of a model and its results.
        report: Receives a message for each damaged checkpoint.

    Returns:
        The content of ``results.json``.
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
    results: Results = {
        "model": chosen,
        "step": step,
        "average": recipe.average,
        "candidates": candidates,
    }
    _save(output, model, tokenizer, card(model, results), results)
    return results


def _candidates(
    folder: Path, recipe: TrainingRecipe, best_step: int | None, report: Report
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
    tokenizer: PreTrainedTokenizerBase | None,
    card: str,
    results: Results,
) -> None:
    """Write the files of the model elsewhere, then move each to its place, the results last."""
    staging = output / MODEL_STAGING
    shutil.rmtree(staging, ignore_errors=True)
    try:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        write_atomically(staging / "README.md", card)
        write_atomically(staging / RESULTS, json.dumps(results, indent=2))
        use_default_permissions(staging)
        (output / RESULTS).unlink(missing_ok=True)
        for path in sorted(staging.iterdir(), key=lambda path: _LAST.get(path.name, 0)):
            path.replace(output / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
