"""Attention composed of PyTorch operations: for every device, and gradients of any order."""

import torch
from torch import Tensor

from adasparse.functional.attention_arguments import compute_dtype, prepared
from adasparse.functional.backends import differentiable_kernels, needs_registered_op
from adasparse.functional.entmax import entmax_from
from adasparse.kernels import AttentionProblem
from adasparse.kernels.packed import is_packed, offsets_of, unpacked
from adasparse.kernels.problem import with_tensors

without_autocast = differentiable_kernels.without_autocast


def _prepared(problem: AttentionProblem) -> AttentionProblem:
    """Convert the problem without reading values where that is impossible."""
    if needs_registered_op(problem.query, problem.alpha) or (
        torch._C._functorch.is_functorch_wrapped_tensor(problem.alpha)
    ):
        known = differentiable_kernels.known_alpha(problem.alpha)
        is_wide = problem.query.dtype == torch.float64 or (known is not None and known > 2)
        wide = prepared(problem, torch.float64 if is_wide else torch.float32)
    else:
        wide = prepared(problem, compute_dtype(problem))
    if wide.alpha.device == wide.query.device:
        return wide
    return with_tensors(wide, {"alpha": wide.alpha.reshape(())})  # one number in CPU memory


def attention_scores(
    problem: AttentionProblem,
    rows: slice | Tensor = slice(None),
    *,
    num_keys: int | None = None,
) -> Tensor:
    """Return the masked, biased scores ``(b, h, r, k)`` of some queries.

    Args:
        problem: The attention call.
        rows: Queries to score: a slice, or positions ``(r,)``.
        num_keys: Number of keys to score from the first one on; all if None.

    Returns:
        In float32, or float64 for float64 queries or an alpha above 2; ``-inf`` where a key is
        masked.
    """
    with without_autocast(problem.query.device):
        return differentiable_kernels.attention_scores(_prepared(problem), rows, num_keys=num_keys)


def normalized(
    problem: AttentionProblem, scores: Tensor, alpha: float | Tensor, backend: str = "auto"
) -> Tensor:
    """Return the weights ``(b, h, r, k)`` of scores; the sinks of the problem take part.

    Args:
        problem: The attention call, which has the sinks.
        scores: ``(b, h, r, k)``.
        alpha: A number, or broadcastable to ``(b, h, r, 1)``.
        backend: Kernels of the rows.
    """
    columns = differentiable_kernels.with_sinks(problem, scores)
    weights = entmax_from(
        columns, alpha, -1, lowest=1.0, highest=problem.highest_alpha, backend=backend
    )
    return differentiable_kernels.without_sinks(problem, weights)


def attention_weights(problem: AttentionProblem, backend: str = "auto") -> Tensor:
    """Return the weights ``(b, h, q, k)`` before dropout, in the dtype of the query."""
    with without_autocast(problem.query.device):
        wide = _prepared(problem)
        scores = differentiable_kernels.attention_scores(wide)
        weights = normalized(wide, scores, wide.alpha, backend)
    return weights.to(problem.query.dtype)


def differentiable_attention(problem: AttentionProblem, backend: str = "auto") -> Tensor:
    """Return the output ``(b, h, q, e)`` in the dtype of the query."""
    if is_packed(problem):
        return _one_after_another(problem, backend)
    with without_autocast(problem.query.device):
        wide = _prepared(problem)
        scores = differentiable_kernels.attention_scores(wide)
        weights = normalized(wide, scores, wide.alpha, backend)
        output = differentiable_kernels.weighted_values(wide, weights)
    return output.to(problem.query.dtype)


def _one_after_another(problem: AttentionProblem, backend: str) -> Tensor:
    """Attend in each sequence of a packed batch."""
    sequences = unpacked(problem, offsets_of(problem))
    outputs = [differentiable_attention(sequence, backend) for sequence in sequences]
    nothing = problem.query.new_empty(*problem.query.shape[:2], 0, problem.value.shape[3])
    return torch.cat([nothing, *outputs], 2)
