"""Trained long-context models, loaded from the folder of a run."""

from pathlib import Path
from typing import TypeVar, cast

from transformers import PreTrainedTokenizerFast

from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.recipe import LanguageRecipe, LongContextRecipe, TaskRecipe
from adasparse.training import loading, read_recipe
from adasparse.training.recipe import MISTAKES
from adasparse.training.run_folder import RECIPE

Recipe = TypeVar("Recipe", bound=LongContextRecipe)


def load_model(run: str | Path, *, is_writer: bool = False) -> LongContextForCausalLM:
    """Return the model of a run in evaluation mode, on the GPU if there is one."""
    model = loading.load_model(LongContextForCausalLM, run, use_gpu=True, is_writer=is_writer)
    return cast(LongContextForCausalLM, model)


def _read(cls: type[Recipe], run: str | Path, command: str) -> Recipe:
    """Return the recipe of a run that a command made."""
    path = Path(run) / RECIPE
    if not path.is_file():
        raise ValueError(f"A run must be a folder with its recipe; there is no {path}.")
    try:
        return read_recipe(cls, path)
    except ValueError as error:
        if not str(error).startswith(MISTAKES):
            raise  # it is no recipe at all
        raise ValueError(
            f"The run must be one of 'adasparse {command}'; the recipe of {run} is of another kind."
        ) from error


def task_recipe(run: str | Path) -> TaskRecipe:
    """Return the recipe of a run of a task."""
    return _read(TaskRecipe, run, "tasks train")


def load_task_run(run: str | Path) -> tuple[LongContextForCausalLM, TaskRecipe]:
    """Return the model of a run that was trained on a task, and its recipe."""
    recipe = task_recipe(run)
    return load_model(run), recipe


def load_language_run(
    run: str | Path,
) -> tuple[LongContextForCausalLM, PreTrainedTokenizerFast, LanguageRecipe]:
    """Return a language model, its tokenizer and its recipe."""
    recipe = _read(LanguageRecipe, run, "lm train")
    model = load_model(run, is_writer=True)
    tokenizer = loading.load_tokenizer(run, PreTrainedTokenizerFast)
    loading.check_vocabulary(model, tokenizer, run)
    return model, cast(PreTrainedTokenizerFast, tokenizer), recipe
