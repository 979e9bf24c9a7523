"""Interface of a training job: a recipe with its data, model and trainer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from transformers import PreTrainedModel, TrainingArguments

from adasparse.training.recipe import TrainingRecipe
from adasparse.training.results import Results
from adasparse.training.run_folder import Identity, Report
from adasparse.training.trainer import EngineTrainer


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A new model and the largest batch that it would be trained on.

    Args:
        model: The model, with its initial weights.
        inputs: The batch.
        loss: Computes the loss of the model on that batch.
        sizes: Sizes of the training to show to the user, by name.
    """

    model: PreTrainedModel
    inputs: Mapping[str, Tensor]
    loss: Callable[[PreTrainedModel, Mapping[str, Tensor]], Tensor]
    sizes: Mapping[str, float]


class TrainingJob(Protocol):
    """One training, as ``fit`` and ``dry_run`` need it."""

    @property
    def recipe(self) -> TrainingRecipe:
        """Settings of the training."""
        ...

    def identity(self) -> Identity:
        """Check the data and return the facts about them that identify the training."""
        ...

    def build_trainer(self, arguments: TrainingArguments, *, report: Report) -> EngineTrainer:
        """Return the trainer, with a new model; ``report`` receives messages for the user."""
        ...

    def model_card(self, model: PreTrainedModel, results: Results) -> str:
        """Return the text of the model card."""
        ...

    def rehearsal(self) -> Rehearsal:
        """Return a new model and its largest batch; write nothing."""
        ...


def job_identity(job: TrainingJob, world_size: int) -> Identity:
    """Return the facts beside the recipe that two trainings share if they are the same."""
    return {**job.identity(), "accumulate times processes": job.recipe.accumulate * world_size}
