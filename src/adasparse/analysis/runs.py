"""Trained models as they lie in folders, with the log of their training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedModel

import adasparse.integrations.huggingface as _sparse_models  # noqa: F401  # Auto classes know them
import adasparse.longcontext as _long_models  # noqa: F401
from adasparse.training.callbacks import read_log
from adasparse.training.loading import check_vocabulary, load_config, load_model, load_tokenizer
from adasparse.training.recipe_file import load_yaml

#: Endings of the names of model classes, and the Auto classes that load them.
_AUTO = {
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A trained model.

    Args:
        name: Name of its folder.
        folder: Path of its folder.
        model: Model in evaluation mode.
        tokenizer: Its tokenizer.
        log: Lines of its training log; empty without one.
        recipe: Recipe of its training; empty if unknown.
    """

    name: str
    folder: Path
    model: PreTrainedModel
    tokenizer: Any
    log: list[dict[str, Any]]
    recipe: dict[str, Any]

    def alpha_history(self) -> tuple[list[int], dict[str, list[list[float]]]]:
        """Return steps, and alpha at each of them ``(steps, heads)`` by the name of each module."""
        lines = [line for line in self.log if line.get("alpha")]
        if not lines:
            return [], {}
        names = [name for name in lines[0]["alpha"] if all(name in x["alpha"] for x in lines)]
        steps = [int(line["step"]) for line in lines]
        return steps, {name: [line["alpha"][name] for line in lines] for name in names}


def load_run(folder: str | Path, *, name: str | None = None) -> Run:
    """Load a run of ``adasparse train``, or any model saved by transformers.

    Args:
        folder: Folder of the model and its tokenizer.
        name: Name of the run; the name of the folder if None.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If there is no model in it, or it cannot be loaded.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"A run is the folder of a trained model; there is none at {folder}."
        )
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"A run must have a config.json beside its model; {folder} has none. If it is still "
            "being trained, wait for its end."
        )
    model = load_model(getattr(transformers, _auto_class(load_config(folder))), folder)
    tokenizer = load_tokenizer(folder)
    check_vocabulary(model, tokenizer, folder)
    return Run(
        name=name or folder.resolve().name,
        folder=folder,
        model=model,
        tokenizer=tokenizer,
        log=read_log(folder / "log.jsonl"),
        recipe=_read_recipe(folder / "recipe.yaml"),
    )


def _auto_class(config: Any) -> str:
    if config.is_encoder_decoder:
        return "AutoModelForSeq2SeqLM"
    for architecture in config.architectures or ():
        for ending, auto in _AUTO.items():
            if architecture.endswith(ending):
                return auto
    return "AutoModel"


def _read_recipe(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = load_yaml(path)
    return found if isinstance(found, dict) else {}


def unique_names(folders: list[Path]) -> list[str]:
    """Return a name for each folder: its own, or as much of its path as tells them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"Runs must be different folders; got {[str(x) for x in folders]}.")
