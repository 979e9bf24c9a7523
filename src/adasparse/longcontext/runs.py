"""Trained models, read from the folder of a run."""

from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.recipe import LanguageRecipe, TaskRecipe
from adasparse.training import read_recipe
from adasparse.training.folder import RECIPE


def load_model(run: str | Path) -> LongContextForCausalLM:
    """Return the model of a run in evaluation mode, on the GPU if there is one."""
    run = Path(run)
    if not (run / "config.json").is_file():
        checkpoints = "; its training has not ended" if (run / "checkpoints").is_dir() else ""
        raise ValueError(
            f"A run must be a folder with a trained model; there is no {run / 'config.json'}"
            f"{checkpoints}."
        )
    model: LongContextForCausalLM = LongContextForCausalLM.from_pretrained(run)
    if torch.cuda.is_available():
        model.to("cuda")  # type: ignore[arg-type]
    model.eval()
    return model


def _recipe_file(run: str | Path) -> Path:
    path = Path(run) / RECIPE
    if not path.is_file():
        raise ValueError(f"A run must be a folder with its recipe; there is no {path}.")
    return path


def task_recipe(run: str | Path) -> TaskRecipe:
    """Return how the model of a run was trained on a task."""
    return read_recipe(TaskRecipe, _recipe_file(run))


def load_task_run(run: str | Path) -> tuple[LongContextForCausalLM, TaskRecipe]:
    """Return the model of a run that was trained on a task, and its recipe."""
    recipe = task_recipe(run)
    return load_model(run), recipe


def load_language_run(
    run: str | Path,
) -> tuple[LongContextForCausalLM, PreTrainedTokenizerFast, LanguageRecipe]:
    """Return a language model, its tokenizer and its recipe."""
    recipe = read_recipe(LanguageRecipe, _recipe_file(run))
    model = load_model(run)
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(run)
    return model, tokenizer, recipe
