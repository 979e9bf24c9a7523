"""What a training would do, found out in seconds."""

import os
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.recipe import LongContextRecipe, TaskRecipe
from adasparse.longcontext.tasks import find_task
from adasparse.longcontext.train import FREE, build_task_model, training_facts
from adasparse.training import check_folder, thread_limit


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a training would do.

    Args:
        parameters: Of the model.
        examples: How many it would be trained on.
        loss: Of a batch of the longest examples, with the first weights.
        seconds_per_step: Measured on that batch.
    """

    parameters: int
    examples: int
    loss: float
    seconds_per_step: float


def dry_run_task(recipe: TaskRecipe, *, resume: bool = False) -> DryRun:
    """Check folder, model and one update of the weights; nothing is written."""
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    facts = training_facts(recipe, world_size)
    check_folder(recipe.output, recipe, facts=facts, free=FREE, resume=resume)
    task = find_task(recipe.task)
    inputs = task.batch(recipe.seed + 1, recipe.batch_size, recipe.lengths[1]).model_inputs()
    with thread_limit(recipe.threads):
        return rehearse(build_task_model(recipe), inputs, recipe, world_size=world_size)


def rehearse(
    model: LongContextForCausalLM,
    inputs: dict[str, Tensor],
    recipe: LongContextRecipe,
    *,
    world_size: int,
) -> DryRun:
    """Update the weights twice, the first time to warm up."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()  # type: ignore[arg-type]
    inputs = {name: x.to(device) for name, x in inputs.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, fused=True)
    losses = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds = time.perf_counter() - start
    per_step = recipe.batch_size * recipe.accumulate * world_size
    return DryRun(
        parameters=sum(x.numel() for x in model.parameters()),
        examples=recipe.max_steps * per_step,
        loss=losses[0],
        seconds_per_step=seconds * recipe.accumulate,
    )
