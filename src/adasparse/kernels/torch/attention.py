"""Attention in PyTorch alone, with the gradient written out."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.kernels.packed import is_packed, joined_gradients, offsets_of, unpacked
from adasparse.kernels.problem import AttentionGradients, AttentionProblem, SparseRows
from adasparse.kernels.torch.rows import entmax_backward, entmax_forward
from adasparse.kernels.torch.scores import (
    attention_scores,
    compute_dtype,
    distances,
    dropout_factors,
    finite_part,
    pick_rows,
    weighted_values,
    with_sinks,
    without_autocast,
    without_padding,
    without_sinks,
)

#: Entries of the scores that are held at a time where the matrix must not be materialized.
BLOCK_SIZE = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedWeights:
    """The weights before dropout, ``(b, h, q, k)``, those of sinks in one more column.

    Those of a packed batch lie one sequence after another in one dimension.
    """

    weights: Tensor


def _entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    """Normalize ``(b, h, q, k)`` with an alpha that broadcasts to ``(b, h, q, 1)``."""
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    return entmax_forward(scores.flatten(0, 2), _alpha_rows(scores, alpha)).view(scores.shape)


def _entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``RowKernels.entmax_backward``; a sequence of a packed batch may have no keys."""
    if weights.numel() == 0:
        return grad, weights.new_zeros(len(weights)) if with_alpha else None
    return entmax_backward(weights, grad, alpha, with_alpha=with_alpha)


def _alpha_rows(scores: Tensor, alpha: Tensor) -> Tensor:
    if alpha.numel() == 1:
        return alpha.reshape(())
    return alpha.expand(*scores.shape[:3], 1).reshape(-1)


def attention_forward(
    problem: AttentionProblem, *, keep: bool
) -> tuple[Tensor, SavedWeights | None]:
    """See ``AttentionKernels.attention_forward``; materializes the score matrix."""
    if is_packed(problem):
        return _packed_forward(problem, keep)
    with without_autocast(problem.query.device):
        weights = _entmax(with_sinks(problem, attention_scores(problem)), problem.alpha)
        output = weighted_values(problem, without_sinks(problem, weights))
    return output.to(problem.query.dtype), SavedWeights(weights=weights) if keep else None


def attention_backward(
    problem: AttentionProblem, saved: SavedWeights, grad: Tensor, needs: frozenset[str]
) -> AttentionGradients:
    """See ``AttentionKernels.attention_backward``; query, key and value always get theirs."""
    if is_packed(problem):
        return _packed_backward(problem, saved, grad, needs)
    with without_autocast(problem.query.device):
        return _backward(problem, saved.weights, grad, needs)


def _packed_forward(problem: AttentionProblem, keep: bool) -> tuple[Tensor, SavedWeights | None]:
    """One sequence after another."""
    offsets = offsets_of(problem)
    output = problem.query.new_zeros(*problem.query.shape[:3], problem.value.shape[3])
    kept = [problem.query.new_empty(0, dtype=compute_dtype(problem))]
    for s, sequence in enumerate(unpacked(problem, offsets)):
        output[:, :, offsets.queries(s)], saved = attention_forward(sequence, keep=keep)
        if saved is not None:
            kept.append(saved.weights.flatten())
    return output, SavedWeights(weights=torch.cat(kept)) if keep else None


def _packed_backward(
    problem: AttentionProblem, saved: SavedWeights, grad: Tensor, needs: frozenset[str]
) -> AttentionGradients:
    offsets = offsets_of(problem)
    parts, used = [], 0
    for s, sequence in enumerate(unpacked(problem, offsets)):
        shape = (*sequence.query.shape[:3], sequence.key.shape[2] + (problem.sinks is not None))
        size = math.prod(shape)
        mine = SavedWeights(weights=saved.weights[used : used + size].view(shape))
        parts.append(attention_backward(sequence, mine, grad[:, :, offsets.queries(s)], needs))
        used += size
    return joined_gradients(problem, offsets, parts)


def _backward(
    problem: AttentionProblem, saved: Tensor, grad: Tensor, needs: frozenset[str]
) -> AttentionGradients:
    dtype = compute_dtype(problem)
    weights = without_sinks(problem, saved)
    query = problem.query.to(dtype)
    key, value = (
        without_padding(x.to(dtype), problem.key_lengths) for x in (problem.key, problem.value)
    )
    (b, h, q, k), g = weights.shape, key.shape[1]
    factors = dropout_factors(problem)
    dropped = weights if factors is None else weights * factors

    def grouped(x: Tensor) -> Tensor:
        """``(b, h, q, n)`` as ``(b, g, h / g * q, n)``: heads that share keys are more rows."""
        return x.reshape(b, g, h // g * q, x.shape[-1])

    grad = grouped(grad.to(dtype))
    by_value = grouped(dropped).transpose(-1, -2) @ grad
    by_weights = (grad @ value.transpose(-1, -2)).reshape(b, h, q, k)
    if factors is not None:
        by_weights = torch.where(factors == 0, 0.0, by_weights * factors)
    if problem.sinks is not None:  # which have no value
        by_weights = torch.nn.functional.pad(by_weights, (0, 1))
    flat_scores, flat_alpha = _entmax_backward(
        saved.flatten(0, 2),
        by_weights.flatten(0, 2),
        _alpha_rows(weights, problem.alpha),
        with_alpha="alpha" in needs,
    )
    by_columns = flat_scores.view(saved.shape)
    by_scores = by_products = without_sinks(problem, by_columns)
    if problem.softcap is not None:
        products = (grouped(query) @ key.transpose(-1, -2)).reshape(b, h, q, k)
        capped = (products * (problem.scale / problem.softcap)).tanh()
        by_products = torch.where(weights == 0, 0.0, by_scores * (1 - capped**2))
    # Those that are not masked have made the gradients of their rows NaN.
    query, key = finite_part(query), finite_part(key)
    by_query = problem.scale * (grouped(by_products) @ key)
    by_key = grouped(by_products).transpose(-1, -2) @ (problem.scale * grouped(query))
    by_alpha = by_mask = by_slopes = by_sinks = None
    if flat_alpha is not None:
        by_alpha = flat_alpha.view(b, h, q, 1).sum_to_size(problem.alpha.shape)
    if "mask" in needs:
        assert problem.mask is not None
        by_mask = by_scores.sum_to_size(problem.mask.shape)
    if "slopes" in needs:
        by_slopes = -(by_scores * distances(problem)).sum((0, 2, 3)).double()
    if "sinks" in needs:
        by_sinks = by_columns[..., -1].sum((0, 2)).double()
    return AttentionGradients(
        query=by_query.reshape(query.shape),
        key=without_padding(by_key, problem.key_lengths),
        value=without_padding(by_value, problem.key_lengths),
        alpha=by_alpha,
        mask=by_mask,
        slopes=by_slopes,
        sinks=by_sinks,
    )


def attention_support(problem: AttentionProblem) -> SparseRows:
    """See ``AttentionKernels.attention_support``; some queries at a time."""
    (b, h, q, _), k = problem.query.shape, problem.key.shape[2]
    step = max(1, BLOCK_SIZE // max(1, b * h * k))
    rows, cols, values = [], [], []
    for first in range(0, max(1, q), step):
        block = slice(first, first + step)
        scores = with_sinks(problem, attention_scores(problem, block))
        weights = without_sinks(problem, _entmax(scores, pick_rows(problem.alpha, block)))
        batch, head, i, j = weights.nonzero(as_tuple=True)
        rows.append((batch * h + head) * q + first + i)
        cols.append(j)
        values.append(weights[batch, head, i, j])
    row = torch.cat(rows)
    order = row.argsort(stable=True)
    crow = row.new_zeros(b * h * q + 1)
    crow[1:] = row.bincount(minlength=b * h * q).cumsum(0)
    return SparseRows(crow=crow, col=torch.cat(cols)[order], value=torch.cat(values)[order])
