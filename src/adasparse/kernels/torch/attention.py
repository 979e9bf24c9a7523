"""Attention in PyTorch alone: every device, and differentiable any number of times."""

from collections.abc import Callable

import torch
from torch import Tensor

from adasparse.kernels.problem import AttentionProblem

#: Gives weights for scores and alpha; passed in, for it has gradients and lives a layer above.
Entmax = Callable[[Tensor, Tensor], Tensor]

_LOW = 0xFFFFFFFF
#: Entries of the scores that are held at a time where the matrix must not be built.
_BLOCK = 1 << 22


def _compute_dtype(problem: AttentionProblem) -> torch.dtype:
    return torch.float64 if problem.query.dtype == torch.float64 else torch.float32


def _rows(x: Tensor, rows: slice) -> Tensor:
    """Take ``rows`` along dimension 2, where ``x`` does not have size 1 to broadcast."""
    return x if x.shape[2] == 1 else x[:, :, rows]


def _is_visible(problem: AttentionProblem, i: Tensor, j: Tensor, rows: slice) -> Tensor | None:
    """Which keys take part, broadcastable to ``(b, h, q, k)``; None if all do."""
    conditions = []
    if problem.mask is not None and problem.mask.dtype == torch.bool:
        conditions.append(_rows(problem.mask, rows))
    if problem.key_lengths is not None:
        conditions.append(j < problem.key_lengths.reshape(-1, 1, 1, 1))
    if problem.is_causal:
        conditions.append(j <= i.unsqueeze(-1))
    if not conditions:
        return None
    visible = conditions[0]
    for condition in conditions[1:]:
        visible = visible & condition
    return visible


def _without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Put zeros after the end of each sequence of ``(b, g, k, d)``, which may hold anything."""
    if lengths is None:
        return x
    j = torch.arange(x.shape[2], device=x.device).unsqueeze(-1)
    return torch.where(j < lengths.reshape(-1, 1, 1, 1), x, 0.0)


def attention_scores(problem: AttentionProblem, rows: slice = slice(None)) -> Tensor:
    """Scores ``(b, h, q, k)`` of the queries ``rows`` in float32, or float64 for float64 inputs.

    ``-inf`` stands where a key takes no part.
    """
    dtype = _compute_dtype(problem)
    query, num_queries = problem.query[:, :, rows].to(dtype), problem.query.shape[2]
    key = _without_padding(problem.key.to(dtype), problem.key_lengths)
    b, h, q, d = query.shape
    g, k = key.shape[1:3]
    shared = (problem.scale * query).reshape(b, g, h // max(g, 1) * q, d)
    scores = (shared @ key.transpose(-1, -2)).reshape(b, h, q, k)
    i = torch.arange(num_queries, device=query.device)[rows]
    j = torch.arange(k, device=query.device)
    if problem.slopes is not None:
        distance = (i.unsqueeze(-1) + (k - num_queries) - j).abs().to(dtype)
        scores = scores - problem.slopes.to(dtype).reshape(-1, 1, 1) * distance
    if problem.mask is not None and problem.mask.is_floating_point():
        scores = scores + _rows(problem.mask, rows).to(dtype)
    visible = _is_visible(problem, i, j, rows)
    return scores if visible is None else torch.where(visible, scores, -torch.inf)


def _signed(x: int) -> int:
    """Return the int64 that has the bits of ``x``."""
    return x - (1 << 64) if x >> 63 else x


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x >> bits`` of an int64 taken as unsigned."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _row_keys(seed: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Two random 32-bit numbers for each row, by the SplitMix64 generator."""
    x = seed + (rows + 1) * _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    x = x ^ _shifted(x, 31)
    return x & _LOW, _shifted(x, 32)


def dropout_factors(problem: AttentionProblem) -> Tensor | None:
    """Return what dropout multiplies the weights ``(b, h, q, k)`` by: 0 or ``1 / (1 - p)``.

    Each factor is a hash of the seed and of its place alone, the same one in every kernel.
    """
    if problem.seed is None:
        return None
    (b, h, q, _), k = problem.query.shape, problem.key.shape[2]
    device, dtype = problem.query.device, _compute_dtype(problem)
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


def attention(problem: AttentionProblem, entmax: Entmax) -> Tensor:
    """Attend with the weights that ``entmax(scores, alpha)`` gives.

    Returns:
        ``(b, h, q, e)`` in the dtype of the query. Fully masked rows are zero.
    """
    weights = entmax(attention_scores(problem), problem.alpha)
    factors = dropout_factors(problem)
    if factors is not None:
        weights = weights * factors
    value = _without_padding(problem.value.to(weights.dtype), problem.key_lengths)
    b, h, q, k = weights.shape
    g, e = value.shape[1], value.shape[3]
    output = weights.reshape(b, g, h // max(g, 1) * q, k) @ value
    return output.reshape(b, h, q, e).to(problem.query.dtype)


def attention_support(problem: AttentionProblem, entmax: Entmax) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of all rows ``(b h q, k)`` as a CSR matrix: crow, col, value."""
    (b, h, q, _), k = problem.query.shape, problem.key.shape[2]
    step = max(1, _BLOCK // max(1, b * h * k))
    rows, cols, values = [], [], []
    for first in range(0, max(1, q), step):
        block = slice(first, first + step)
        weights = entmax(attention_scores(problem, block), _rows(problem.alpha, block))
        batch, head, i, j = weights.nonzero(as_tuple=True)
        rows.append((batch * h + head) * q + first + i)
        cols.append(j)
        values.append(weights[batch, head, i, j])
    row = torch.cat(rows)
    order = row.argsort(stable=True)
    crow = row.new_zeros(b * h * q + 1)
    crow[1:] = row.bincount(minlength=b * h * q).cumsum(0)
    return crow, torch.cat(cols)[order], torch.cat(values)[order]
