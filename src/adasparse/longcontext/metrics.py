"""Accuracy on a task, with confidence intervals."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from adasparse.longcontext.tasks import IGNORED, TaskBatch


@dataclass(frozen=True, kw_only=True, eq=False)
class Correct:
    """Correct answers of each example of a batch.

    Args:
        tokens: ``(b,)``: how many labels are what the model finds most likely.
        labels: ``(b,)``: how many labels there are.
    """

    tokens: Tensor
    labels: Tensor

    @property
    def exact(self) -> Tensor:
        """``(b,)``: whether all of them are."""
        return self.tokens == self.labels


@torch.no_grad()
def count_correct(model: nn.Module, batch: TaskBatch) -> Correct:
    """Compare predictions with labels, in one pass that reads the right tokens before each.

    Greedy decoding continues with its own tokens, which are right up to its first mistake: it
    makes none if and only if there is none here, so ``exact`` is what decoding would give.

    Args:
        model: A causal language model of transformers; set it to ``eval()`` before.
        batch: Batch of any task.
    """
    asked = (batch.labels[:, 1:] != IGNORED).any(0).nonzero().squeeze(1)
    device = next(model.parameters()).device
    outputs = model(
        input_ids=batch.input_ids.to(device),
        attention_mask=batch.attention_mask.to(device),
        use_cache=False,
        logits_to_keep=asked.to(device),
    )
    labels = batch.labels[:, asked + 1]
    is_right = outputs.logits.argmax(-1).cpu() == labels
    return Correct(tokens=is_right.sum(1), labels=(labels != IGNORED).sum(1))


def wilson_interval(
    successes: int, trials: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the ends of Wilson's interval for a share, sensible also for none and for all.

    Example:
        >>> low, high = wilson_interval(50, 100)
        >>> f"{low:.4f} {high:.4f}"
        '0.4038 0.5962'
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"successes must be from 0 to trials, at least 1; got {successes} and {trials}."
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence}.")
    z = math.sqrt(2) * torch.erfinv(torch.tensor(confidence, dtype=torch.float64)).item()
    share, weight = successes / trials, z**2 / trials
    center = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(share * (1 - share) * weight + weight**2 / 4) / (1 + weight)
    return max(0.0, center - reach), min(1.0, center + reach)
