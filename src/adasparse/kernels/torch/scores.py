"""Masked, biased attention scores and dropout in PyTorch operations, for any device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.jit._trace import is_tracing

from adasparse.kernels.problem import AttentionProblem

_LOW = 0xFFFFFFFF


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Keep autocast from rounding the operations of a full-precision computation."""
    # Every CPU has autocast, and torch 2.6 does not trace the question.
    has_autocast = device.type == "cpu" or torch.amp.is_autocast_available(device.type)
    if has_autocast and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def compute_dtype(problem: AttentionProblem) -> torch.dtype:
    """Return float64 for float64 queries, else float32."""
    return torch.float64 if problem.query.dtype == torch.float64 else torch.float32


def pick_rows(x: Tensor, rows: slice | Tensor) -> Tensor:
    """Return ``rows`` of dimension 2, unless ``x`` has size 1 there to broadcast."""
    return x if x.shape[2] == 1 else x[:, :, rows]


def _visible(
    problem: AttentionProblem, i: Tensor, j: Tensor, rows: slice | Tensor
) -> Tensor | None:
    """Return whether each key takes part, broadcastable to ``(b, h, q, k)``; None if all do."""
    conditions = []
    if problem.mask is not None and problem.mask.dtype == torch.bool:
        conditions.append(_pick_mask(problem.mask, rows, j.shape[0]))
    if problem.key_lengths is not None:
        conditions.append(j < problem.key_lengths.reshape(-1, 1, 1, 1))
    if problem.is_causal:
        conditions.append(j <= i.unsqueeze(-1))
    if problem.window_left is not None:
        conditions.append(j >= i.unsqueeze(-1) - problem.window_left)
    if problem.window_right is not None:
        conditions.append(j <= i.unsqueeze(-1) + problem.window_right)
    if not conditions:
        return None
    visible = conditions[0]
    for condition in conditions[1:]:
        visible = visible & condition
    return visible


def _pick_mask(mask: Tensor, rows: slice | Tensor, num_keys: int) -> Tensor:
    mask = pick_rows(mask, rows)
    return mask if mask.shape[3] <= num_keys else mask[..., :num_keys]


def without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Put zeros after the end of each sequence of ``(b, g, k, d)``, which may hold anything."""
    if lengths is None:
        return x
    j = torch.arange(x.shape[2], device=x.device).unsqueeze(-1)
    return torch.where(j < lengths.reshape(-1, 1, 1, 1), x, 0.0)


def distances(
    problem: AttentionProblem, rows: slice | Tensor = slice(None), num_keys: int | None = None
) -> Tensor:
    """Return the distances ``|i + k - q - j|`` of ALiBi, ``(q, k)`` in the compute dtype."""
    q, k, device = problem.query.shape[2], problem.key.shape[2], problem.query.device
    i = torch.arange(q, device=device)[rows]
    j = torch.arange(k if num_keys is None else num_keys, device=device)
    return (i.unsqueeze(-1) + (k - q) - j).abs().to(compute_dtype(problem))


def attention_scores(
    problem: AttentionProblem,
    rows: slice | Tensor = slice(None),
    *,
    num_keys: int | None = None,
) -> Tensor:
    """Return the scores ``(b, h, r, k)`` of the queries ``rows``.

    Args:
        problem: The attention call.
        rows: Queries to score: a slice, or positions ``(r,)``.
        num_keys: Number of keys to score from the first one on; all if None.

    Returns:
        In float32, or float64 for float64 queries; ``-inf`` where a key is masked.
    """
    dtype = compute_dtype(problem)
    query, num_queries = problem.query[:, :, rows].to(dtype), problem.query.shape[2]
    key = problem.key if num_keys is None else problem.key[:, :, :num_keys]
    key = without_padding(key.to(dtype), problem.key_lengths)
    b, h, q, d = query.shape
    g, k = key.shape[1:3]
    shared = (problem.scale * query).reshape(b, g, h // max(g, 1) * q, d)
    scores = (shared @ key.transpose(-1, -2)).reshape(b, h, q, k)
    if problem.softcap is not None:
        scores = (scores / problem.softcap).tanh() * problem.softcap
    if problem.slopes is not None:
        slopes = problem.slopes.to(dtype).reshape(-1, 1, 1)
        scores = scores - slopes * distances(problem, rows, num_keys)
    if problem.mask is not None and problem.mask.is_floating_point():
        scores = scores + _pick_mask(problem.mask, rows, k).to(dtype)
    i = torch.arange(num_queries, device=query.device)[rows] + problem.position
    visible = _visible(problem, i, torch.arange(k, device=query.device), rows)
    return scores if visible is None else torch.where(visible, scores, -torch.inf)


def with_sinks(problem: AttentionProblem, scores: Tensor) -> Tensor:
    """Return the scores ``(b, h, r, k)`` with those of the sinks in one more column, if any."""
    if problem.sinks is None:
        return scores
    column = problem.sinks.to(scores.dtype).reshape(-1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat((scores, column), -1)


def without_sinks(problem: AttentionProblem, weights: Tensor) -> Tensor:
    """Return the weights of keys from those of keys and sinks."""
    return weights if problem.sinks is None else weights[..., :-1]


def _signed(x: int) -> int:
    """Return the int64 that has the bits of ``x``."""
    return x - (1 << 64) if x >> 63 else x


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x >> bits`` of an int64 taken as unsigned."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _row_keys(seed: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return two random 32-bit numbers for each row, by the SplitMix64 generator."""
    x = seed + (rows + 1) * _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    x = x ^ _shifted(x, 31)
    return x & _LOW, _shifted(x, 32)


def dropout_factors(problem: AttentionProblem) -> Tensor | None:
    """Return the factors of dropout for the weights ``(b, h, q, k)``: 0 or ``1 / (1 - p)``.

    Each factor is a hash of the seed and of its place alone, the same one in every kernel.
    """
    if problem.seed is None:
        return None
    (b, h, q, _), k = problem.query.shape, problem.key.shape[2]
    device, dtype = problem.query.device, compute_dtype(problem)
    if problem.dropout_p == 1:
        return torch.zeros(b, h, q, k, dtype=dtype, device=device)
    rows = torch.arange(b * h * q, device=device).reshape(b, h, q, 1)
    key0, key1 = _row_keys(problem.seed.to(device), rows)
    y = (torch.arange(k, device=device) * 0x9E3779B1 + key0) & _LOW
    y = ((y ^ (y >> 16)) * 0x85EBCA6B) & _LOW
    y = y ^ key1
    y = ((y ^ (y >> 13)) * 0xC2B2AE35) & _LOW
    y = y ^ (y >> 16)
    threshold = min(int(problem.dropout_p * 2**32), _LOW)
    return (y >= threshold).to(dtype) / (1 - problem.dropout_p)


def _are_finite(x: Tensor) -> bool:
    """Whether all numbers are finite; False where looking at them would stall or is impossible."""
    is_readable = (
        x.is_cpu
        and type(x) is Tensor
        and not torch.compiler.is_compiling()
        and not is_tracing()
        and not torch._C._are_functorch_transforms_active()
    )
    return is_readable and bool(x.isfinite().all())


def finite_part(x: Tensor) -> Tensor:
    """Return ``x`` with zeros for NaN and infinities."""
    return x if _are_finite(x) else torch.where(x.isfinite(), x, 0.0)


def _product_of_support(weights: Tensor, value: Tensor) -> Tensor:
    """``weights @ value`` where a weight of zero leaves NaN and infinite values out of the sum."""
    if _are_finite(value):
        return weights @ value
    output = weights @ finite_part(value)
    kinds = torch.cat((value.isposinf() | value.isnan(), value.isneginf() | value.isnan()), -1)
    counts = (weights != 0).to(value.dtype) @ kinds.to(value.dtype)
    rises, falls = (counts > 0).chunk(2, -1)
    beyond = torch.where(rises & falls, torch.nan, torch.where(rises, torch.inf, -torch.inf))
    return torch.where(rises | falls, beyond.to(output.dtype), output)


def weighted_values(problem: AttentionProblem, weights: Tensor) -> Tensor:
    """Return ``weights @ value`` after dropout, ``(b, h, q, e)``.

    Padded values, and those of weight zero, never matter.
    """
    factors = dropout_factors(problem)
    if factors is not None:
        weights = weights * factors
    value = without_padding(problem.value.to(weights.dtype), problem.key_lengths)
    b, h, q, k = weights.shape
    g, e = value.shape[1], value.shape[3]
    grouped = weights.reshape(b, g, h // max(g, 1) * q, k)
    return _product_of_support(grouped, value).reshape(b, h, q, e)
