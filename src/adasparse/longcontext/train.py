"""From a recipe to a model that does a task: examples made as they are needed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

from adasparse.integrations.huggingface import SparsityTrainerMixin
from adasparse.longcontext.card import task_card
from adasparse.longcontext.length_scores import evaluate_lengths
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.recipe import LongContextRecipe, TaskRecipe
from adasparse.longcontext.tasks import Task, find_task
from adasparse.training import (
    BestModel,
    EngineMixin,
    ProgressBar,
    RunningNumbers,
    recipe_arguments,
    train_session,
)

#: What may be another when a training goes on. Batches per update are compared as a product.
FREE = (
    *("max_steps", "log_steps", "eval_steps", "save_steps", "keep", "patience", "average"),
    *("threads", "workers", "output", "accumulate"),
)
#: Seed of the development data. That of tests is 0, those of training are above.
_DEV_SEED = -1


class LongContextTrainer(EngineMixin, SparsityTrainerMixin, Trainer):
    """Trainer with the engine's batches and checkpoints."""


class TaskCollator:
    """Makes the examples of some numbers.

    Args:
        task: Which kind of examples.
        seed: Of the training.
        lengths: Shortest and longest source.
    """

    def __init__(self, task: Task, *, seed: int, lengths: tuple[int, int]) -> None:
        self.task, self.seed, self.lengths = task, seed + 1, lengths

    def __call__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return what a model takes, of numbers that follow one another."""
        batch = self.task.batch(self.seed, len(numbers), self.lengths, first=numbers[0])
        return batch.model_inputs()


class TaskScorer:
    """Exact match on development data, at every length and on average."""

    def __init__(self, recipe: TaskRecipe) -> None:
        self.recipe, self.task = recipe, find_task(recipe.task)

    def scores(self, model: PreTrainedModel) -> dict[str, float]:
        """Return exact match, at each length also the share of right tokens."""
        ladder = evaluate_lengths(
            cast(LongContextForCausalLM, model),
            self.task,
            self.recipe.dev_lengths,
            examples=self.recipe.eval_examples,
            seed=_DEV_SEED,
        )
        if not ladder.scores:
            raise ValueError(f"There is no memory to score: {ladder.stopped}.")
        found = {"exact_match": sum(x.exact_match for x in ladder.scores) / len(ladder.scores)}
        for score in ladder.scores:
            found[f"exact_match_{score.length}"] = score.exact_match
            found[f"token_accuracy_{score.length}"] = score.token_accuracy
        return found


def build_task_model(recipe: TaskRecipe) -> LongContextForCausalLM:
    """Return a new model; the same seed gives the same weights."""
    torch.manual_seed(recipe.seed)
    return LongContextForCausalLM(recipe.task_config())


def train_task(
    recipe: TaskRecipe,
    *,
    resume: bool = False,
    report: Callable[[str], None] = lambda message: None,
    progress: ProgressBar | None = None,
) -> Path:
    """Train a model; return the folder of the run, which loads with the Auto classes.

    Args:
        recipe: What to train.
        resume: Whether to go on with what is in the folder of the run.
        report: Gets messages for the user.
        progress: What shows how it goes; nothing if None.

    Raises:
        TrainingStopped: If it was interrupted; ``resume`` goes on from there.
    """
    arguments = recipe_arguments(TrainingArguments, recipe)
    return train_session(
        recipe,
        lambda: _build_trainer(recipe, arguments),
        card=lambda model, results: task_card(recipe, results),
        facts=training_facts(recipe, arguments.world_size),
        free=FREE,
        resume=resume,
        report=report if arguments.process_index == 0 else lambda message: None,
        progress=progress,
    )


def training_facts(recipe: LongContextRecipe, world_size: int) -> dict[str, Any]:
    """Return what makes two trainings the same beside their recipes."""
    return {"accumulate times processes": recipe.accumulate * world_size}


def _build_trainer(recipe: TaskRecipe, arguments: TrainingArguments) -> LongContextTrainer:
    batches = RunningNumbers(
        recipe.batch_size, num_batches=recipe.max_steps * recipe.accumulate * arguments.world_size
    )
    numbers: Any = range(len(batches) * recipe.batch_size)
    return LongContextTrainer(
        model=build_task_model(recipe),
        args=arguments,
        train_dataset=numbers,
        eval_dataset=numbers,
        data_collator=TaskCollator(
            find_task(recipe.task), seed=recipe.seed, lengths=recipe.lengths
        ),
        batches=batches,
        scorer=TaskScorer(recipe),
        keep=recipe.keep,
        best=BestModel("eval_exact_match", is_better_high=True, patience=recipe.patience),
        tensorboard=Path(recipe.output) / "tensorboard",
    )
