"""Roles of heads: weight on the first token, on neighbors, and on everything else."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

#: Outputs of a model that hold the weights of each layer, and the masks of queries and keys.
_OUTPUTS = {
    "attentions": ("attention_mask", "attention_mask"),
    "encoder_attentions": ("attention_mask", "attention_mask"),
    "decoder_attentions": ("labels", "labels"),
    "cross_attentions": ("labels", "attention_mask"),
}
_IGNORED = -100


@torch.no_grad()
def head_roles(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return by kind of attention, for each layer and head, the mean weight on some keys.

    ``first`` is the first token, where attention goes that is not needed; ``previous``, ``self``
    and ``next`` are neighbors of the query. ``largest`` is the mean of the largest weight. A model
    with softmax attention computes its weights by the eager implementation.
    """
    is_sparse = any(hasattr(module, "entmax") for module in model.modules())
    before = model.config._attn_implementation
    if not is_sparse:
        model.set_attn_implementation("eager")
    try:
        output = model(**inputs, output_attentions=True)
    finally:
        if not is_sparse:
            model.set_attn_implementation(before)
    found = {}
    for name, (queries, keys) in _OUTPUTS.items():
        layers = getattr(output, name, None)
        if layers:
            found[name] = _roles(layers, _mask(inputs, queries), _mask(inputs, keys))
    return found


def _mask(inputs: Mapping[str, Tensor], name: str) -> Tensor:
    """Return True for tokens, False for padding: ``(b, n)``."""
    if name not in inputs:
        return torch.ones_like(inputs["input_ids"], dtype=torch.bool)
    return inputs[name] != (_IGNORED if name == "labels" else 0)


def _roles(layers: Sequence[Tensor], queries: Tensor, keys: Tensor) -> dict[str, list[list[float]]]:
    # The first query sees itself alone, at least where attention is causal.
    valid = queries.clone()
    valid[:, 0] = False
    picks = {
        "first": lambda weights: weights[..., 0],
        "previous": lambda weights: _diagonal(weights, -1),
        "self": lambda weights: _diagonal(weights, 0),
        "next": lambda weights: _diagonal(weights, 1),
        "largest": lambda weights: weights.amax(-1),
    }
    is_square = queries.shape == keys.shape
    names = [name for name in picks if is_square or name in ("first", "largest")]
    return {
        name: [_mean(picks[name](weights.float()), valid) for weights in layers] for name in names
    }


def _diagonal(weights: Tensor, offset: int) -> Tensor:
    """Return the weight of each query on the key at an offset, zero where there is none."""
    found = torch.zeros(weights.shape[:-1])
    size = weights.shape[-1]
    values = weights.diagonal(offset, -2, -1)
    start = max(0, -offset)
    found[..., start : start + min(size, values.shape[-1])] = values
    return found


def _mean(values: Tensor, valid: Tensor) -> list[float]:
    """Return the mean over valid queries ``(b, n)`` for each head of ``(b, h, n)``."""
    mask = valid[:, None].to(values.dtype)
    mean: list[float] = ((values * mask).sum((0, 2)) / mask.sum((0, 2))).tolist()
    return mean
