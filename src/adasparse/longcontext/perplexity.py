"""Perplexity of a text, by how much of it comes before."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from adasparse.longcontext.memory import available_memory, forward_bytes
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.text import Tokens

#: Places whose logits are there at once.
_LOGITS = 1024
#: Losses beyond which a perplexity is infinite in float64.
_MOST_LOSS = 709.0


@torch.no_grad()
def token_losses(model: LongContextForCausalLM, tokens: Tensor) -> Tensor:
    """Return minus the log-probability of all tokens but the first: ``(b, n)`` to ``(b, n - 1)``.

    Logits are made for a part of the places at a time. Set the model to ``eval()`` before.
    """
    tokens = tokens.to(model.device)
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    found = []
    for start in range(0, tokens.shape[1] - 1, _LOGITS):
        stop = min(start + _LOGITS, tokens.shape[1] - 1)
        logits = model.lm_head(hidden[:, start:stop]).float()
        following = tokens[:, start + 1 : stop + 1]
        found.append(cross_entropy(logits.transpose(1, 2), following, reduction="none"))
    return torch.cat(found, 1).double().cpu()


def perplexity_by_length(
    model: LongContextForCausalLM,
    tokens: Tokens,
    lengths: Sequence[int],
    *,
    train_length: int,
    max_tokens: int = 50_000,
    memory_limit: int | None = None,
    on_length: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Read a text in windows of each length, shortest first, until memory would end.

    Args:
        model: In evaluation mode.
        tokens: ``(n,)``.
        lengths: Lengths of the windows, which follow one another without overlap.
        train_length: Buckets of positions end at 1, 2, 4 … times this.
        max_tokens: Read no more than that at each length, but at least one window.
        memory_limit: Bytes that a pass may take; what the machine has left if None.
        on_length: Called with each entry of ``lengths`` when it is there.

    Returns:
        ``lengths``: for each its ``length``, ``windows``, ``loss``, ``perplexity`` and the same by
        ``buckets`` of positions; ``stopped``: why there are no more, or None.
    """
    found: list[dict[str, Any]] = []
    for length in sorted(set(lengths)):
        stopped = obstacle(model, len(tokens), length, memory_limit)
        if stopped is not None:
            return {"lengths": found, "stopped": stopped}
        windows = max(1, min(len(tokens), max_tokens) // length)
        total = torch.zeros(length - 1, dtype=torch.float64)
        for i in range(windows):
            part = tokens[i * length : (i + 1) * length].astype(np.int64)
            total += token_losses(model, torch.from_numpy(part)[None])[0]
        mean = total / windows
        entry = {
            "length": length,
            "windows": windows,
            **_summary(mean),
            "buckets": _buckets(mean, train_length),
        }
        found.append(entry)
        if on_length is not None:
            on_length(entry)
    return {"lengths": found, "stopped": None}


def obstacle(
    model: LongContextForCausalLM, available: int, length: int, memory_limit: int | None
) -> str | None:
    """Say why a window of this length cannot be read."""
    if length < 2:
        raise ValueError(f"lengths must be at least 2; got {length}.")
    if length > available:
        return f"length {length}: the text has {available} tokens"
    limit = available_memory() if memory_limit is None else memory_limit
    needed = forward_bytes(model.config, length, num_logits=min(length, _LOGITS))
    if limit is None or needed <= limit:
        return None
    return (
        f"length {length}: a pass takes about {needed / 2**30:.2f} GiB of memory, "
        f"{limit / 2**30:.2f} GiB can be had"
    )


def _summary(losses: Tensor) -> dict[str, float]:
    loss = losses.mean().item()
    return {"loss": loss, "perplexity": math.exp(loss) if loss < _MOST_LOSS else math.inf}


def _buckets(losses: Tensor, train_length: int) -> list[dict[str, Any]]:
    """Summarize positions up to 1, 2, 4 … times the training length.

    ``losses[i]`` is that of position ``i + 1``; a bucket is from ``first`` to before ``end``.
    """
    found, first, end = [], 1, train_length
    while first <= len(losses):
        stop = min(end, len(losses) + 1)
        if stop > first:
            found.append({"first": first, "end": stop, **_summary(losses[first - 1 : stop - 1])})
        first, end = max(first, stop), 2 * end
    return found
