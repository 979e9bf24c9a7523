"""Attention composed of PyTorch operations: for every device, and gradients of any order."""

import torch
from torch import Tensor

from adasparse.functional.attention_arguments import compute_dtype, prepared
from adasparse.functional.backends import differentiable_kernels, needs_registered_op
from adasparse.functional.entmax import entmax_from
from adasparse.kernels import AttentionProblem

without_autocast = differentiable_kernels.without_autocast


def _prepared(problem: AttentionProblem) -> AttentionProblem:
    """Convert the problem without reading values where that is impossible."""
    if needs_registered_op(problem.query, problem.alpha) or (
        torch._C._functorch.is_functorch_wrapped_tensor(problem.alpha)
    ):
        known = differentiable_kernels.known_alpha(problem.alpha)
        is_wide = problem.query.dtype == torch.float64 or (known is not None and known > 2)
        return prepared(problem, torch.float64 if is_wide else torch.float32)
    return prepared(problem, compute_dtype(problem))


def attention_scores(
    problem: AttentionProblem,
    rows: slice | Tensor = slice(None),
    *,
    num_keys: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Return the masked, biased scores ``(b, h, r, k)`` of some queries.

    Args:
        problem: The attention call.
        rows: Queries to score: a slice, or positions ``(r,)``.
        num_keys: Number of keys to score from the first one on; all if None.
        softcap: Bound ``c`` of ``c * tanh(score / c)``, applied before bias and mask; none if None.

    Returns:
        In float32, or float64 for float64 queries or an alpha above 2; ``-inf`` where a key is
        masked.
    """
    with without_autocast(problem.query.device):
        return differentiable_kernels.attention_scores(
            _prepared(problem), rows, num_keys=num_keys, softcap=softcap
        )


def attention_weights(
    problem: AttentionProblem, backend: str = "auto", *, softcap: float | None = None
) -> Tensor:
    """Return the weights ``(b, h, q, k)`` before dropout, in the dtype of the query."""
    with without_autocast(problem.query.device):
        wide = _prepared(problem)
        scores = differentiable_kernels.attention_scores(wide, softcap=softcap)
        weights = entmax_from(scores, wide.alpha, -1, lowest=1.0, backend=backend)
    return weights.to(problem.query.dtype)


def differentiable_attention(problem: AttentionProblem, backend: str = "auto") -> Tensor:
    """Return the output ``(b, h, q, e)`` in the dtype of the query."""
    with without_autocast(problem.query.device):
        wide = _prepared(problem)
        scores = differentiable_kernels.attention_scores(wide)
        weights = entmax_from(scores, wide.alpha, -1, lowest=1.0, backend=backend)
        output = differentiable_kernels.weighted_values(wide, weights)
    return output.to(problem.query.dtype)
