"""What a training would do, found out in seconds."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from adasparse._threads import thread_limit
from adasparse.training import TokenBatches, check_folder
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.train import (
    FREE,
    open_data,
    pair_lengths,
    training_facts,
)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a training would do.

    Args:
        parameters: Of the model.
        pairs: Sentence pairs in the training data, without those too long for the model.
        batches_per_epoch: Batches that all pairs make.
        epochs: How often each pair would be seen.
        loss: Of the largest batch, with the first weights.
        seconds_per_step: Measured on that batch.
    """

    parameters: int
    pairs: int
    batches_per_epoch: int
    epochs: float
    loss: float
    seconds_per_step: float


def dry_run(recipe: TranslationRecipe, *, resume: bool = False) -> DryRun:
    """Check folders, data, model and one update of the weights, on the largest batch.

    Nothing is written.
    """
    data = open_data(recipe)
    data.verify()
    facts = training_facts(recipe, data, int(os.environ.get("WORLD_SIZE", 1)))
    check_folder(recipe.output, recipe, facts=facts, free=FREE, resume=resume)
    lengths = pair_lengths(data.train)
    fits = np.flatnonzero(lengths <= recipe.max_positions)
    batches = TokenBatches(lengths[fits], max_tokens=recipe.batch_tokens, seed=recipe.seed)
    largest = max(batches, key=lambda batch: len(batch) * lengths[fits[batch]].max())
    inputs = PairCollator(data.tokenizer.pad_token_id)([data.train[int(fits[i])] for i in largest])
    with thread_limit(recipe.threads):
        model = build_model(recipe, data.tokenizer)
        loss, seconds = _try_updates(model, inputs, recipe)
    return DryRun(
        parameters=sum(x.numel() for x in model.parameters()),
        pairs=len(fits),
        batches_per_epoch=batches.per_epoch,
        epochs=recipe.max_steps * recipe.accumulate / batches.per_epoch,
        loss=loss,
        seconds_per_step=seconds * recipe.accumulate,
    )


def _try_updates(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], recipe: TranslationRecipe
) -> tuple[float, float]:
    """Return the loss of a batch and the seconds that an update takes."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()  # type: ignore[arg-type]
    inputs = {name: x.to(device) for name, x in inputs.items()}
    labels = inputs.pop("labels")
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, fused=True)
    for _ in range(2):  # the first one warms up
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            outputs = model(**inputs)
        loss = TokenLoss(recipe.label_smoothing)({"logits": outputs.logits.float()}, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        result = loss.item()
        seconds = time.perf_counter() - start
    return result, seconds
