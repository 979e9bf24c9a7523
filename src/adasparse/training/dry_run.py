"""Dry run: every check of a training, and two updates of its weights, in seconds."""

import os
import time
from dataclasses import dataclass

import torch
from torch.optim import AdamW, Optimizer

from adasparse._threads import thread_limit
from adasparse.training.job import Rehearsal, TrainingJob, job_identity
from adasparse.training.muon import with_muon
from adasparse.training.recipe import TrainingRecipe
from adasparse.training.run_folder import check_folder


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """Size and cost of a training.

    Args:
        parameters: Number of parameters of the model.
        sizes: Sizes that the job reports, such as the number of examples.
        loss: Loss of the largest batch with the initial weights.
        seconds_per_step: Wall-clock time of an update on that batch.
        max_steps: Number of updates.
    """

    parameters: int
    sizes: dict[str, float]
    loss: float
    seconds_per_step: float
    max_steps: int

    @property
    def hours_at_most(self) -> float:
        """Wall-clock time of all updates in hours, if every batch is the largest."""
        return self.seconds_per_step * self.max_steps / 3600

    def as_dict(self) -> dict[str, float]:
        """Return all numbers by name."""
        return {
            "parameters": self.parameters,
            **self.sizes,
            "loss": self.loss,
            "seconds_per_step": self.seconds_per_step,
            "hours_at_most": self.hours_at_most,
        }


def dry_run(job: TrainingJob, *, resume: bool = False) -> DryRun:
    """Check folder, data and model of a job, and time an update on its largest batch.

    Nothing is written.
    """
    recipe = job.recipe
    identity = job_identity(job, int(os.environ.get("WORLD_SIZE", 1)))
    check_folder(recipe, identity, resume=resume)
    with thread_limit(recipe.threads):
        rehearsal = job.rehearsal()
        loss, seconds = _try_updates(rehearsal, recipe)
    return DryRun(
        parameters=sum(x.numel() for x in rehearsal.model.parameters()),
        sizes=dict(rehearsal.sizes),
        loss=loss,
        seconds_per_step=seconds * recipe.accumulate,
        max_steps=recipe.max_steps,
    )


def _try_updates(rehearsal: Rehearsal, recipe: TrainingRecipe) -> tuple[float, float]:
    """Return the first loss, and the seconds of the second update; the first one warms up."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = rehearsal.model
    model.to(device).train()  # type: ignore[arg-type]
    inputs = {name: x.to(device) for name, x in rehearsal.inputs.items()}
    optimizer: Optimizer = AdamW(model.parameters(), lr=recipe.learning_rate, fused=True)
    if recipe.optimizer == "muon":
        optimizer = with_muon(optimizer, model)
    losses = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            loss = rehearsal.loss(model, inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds = time.perf_counter() - start
    return losses[0], seconds
