"""Training job of a task: examples made as they are needed, a small model, exact match."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, TrainingArguments

from adasparse.longcontext.card import task_card
from adasparse.longcontext.length_scores import evaluate_lengths
from adasparse.longcontext.memory import check_batch
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.recipe import TaskRecipe
from adasparse.longcontext.tasks import Task, find_task
from adasparse.training import (
    BestModel,
    EngineTrainer,
    ProgressBar,
    Rehearsal,
    Results,
    RunningNumbers,
    fit,
)
from adasparse.training.fit import ignore
from adasparse.training.memory import check_parameters
from adasparse.training.run_folder import TENSORBOARD, Identity, Report

#: Seed of the development data. That of tests is 0, those of training are above.
_DEV_SEED = -1


class TaskCollator:
    """Makes the examples of some numbers.

    Args:
        task: Kind of examples.
        seed: Seed of the training.
        lengths: Shortest and longest source.
        first_tasks: Kinds of the first batches, in turn, if they are others.
        num_first: How many batches they are.
    """

    def __init__(
        self,
        task: Task,
        *,
        seed: int,
        lengths: tuple[int, int],
        first_tasks: Sequence[Task] = (),
        num_first: int = 0,
    ) -> None:
        self.task, self.seed, self.lengths = task, seed + 1, lengths
        self.first_tasks, self.num_first = first_tasks, num_first

    def __call__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the inputs of a model for consecutive numbers."""
        which = numbers[0] // len(numbers)
        first = self.first_tasks[which % len(self.first_tasks)] if which < self.num_first else None
        task = first or self.task
        batch = task.batch(self.seed, len(numbers), self.lengths, first=numbers[0])
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


def train_task(
    recipe: TaskRecipe,
    *,
    resume: bool = False,
    report: Report = ignore,
    progress: ProgressBar | None = None,
) -> Path:
    """Train a model on a task; arguments, result and errors are those of ``training.fit``."""
    return fit(TaskJob(recipe), resume=resume, report=report, progress=progress)


def model_loss(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the loss that a model computes of its own."""
    loss: Tensor = model(**inputs).loss
    return loss


@dataclass(frozen=True)
class TaskJob:
    """One training of a model on a task.

    Args:
        recipe: Settings.
    """

    recipe: TaskRecipe

    def identity(self) -> Identity:
        """Return nothing: the recipe alone determines the examples."""
        return {}

    def build_model(self) -> LongContextForCausalLM:
        """Return a new model; the same seed gives the same weights."""
        config = self.recipe.task_config()
        check_parameters(self.recipe.parameters(config.vocab_size))
        check_batch(config, self.recipe.batch_size * self.recipe.lengths[1])
        torch.manual_seed(self.recipe.seed)
        return LongContextForCausalLM(config)

    def build_trainer(
        self, arguments: TrainingArguments, *, report: Report = ignore
    ) -> EngineTrainer:
        """Return the trainer, with a new model."""
        recipe = self.recipe
        per_step = recipe.accumulate * arguments.world_size
        batches = RunningNumbers(recipe.batch_size, num_batches=recipe.max_steps * per_step)
        numbers: Any = range(len(batches) * recipe.batch_size)
        return EngineTrainer(
            model=self.build_model(),
            args=arguments,
            train_dataset=numbers,
            eval_dataset=numbers,
            data_collator=TaskCollator(
                recipe.training_task,
                seed=recipe.seed,
                lengths=recipe.lengths,
                first_tasks=recipe.first_tasks,
                num_first=recipe.few_queries_steps * per_step,
            ),
            batches=batches,
            scorer=TaskScorer(recipe),
            keep=recipe.keep,
            best=BestModel("eval_exact_match", is_better_high=True, patience=recipe.patience),
            alpha_lr_factor=recipe.alpha_lr_factor,
            uses_muon=recipe.optimizer == "muon",
            tensorboard=Path(recipe.output) / TENSORBOARD,
            report=report,
        )

    def model_card(self, model: PreTrainedModel, results: Results) -> str:
        """Return the text of the model card."""
        return task_card(self.recipe, results)

    def rehearsal(self) -> Rehearsal:
        """Return a new model and a batch of the longest examples."""
        recipe, model = self.recipe, self.build_model()
        longest = recipe.training_task.batch(recipe.seed + 1, recipe.batch_size, recipe.lengths[1])
        return Rehearsal(
            model=model,
            inputs=longest.model_inputs(),
            loss=model_loss,
            sizes={"examples": recipe.max_steps * recipe.batch_size * recipe.accumulate},
        )
