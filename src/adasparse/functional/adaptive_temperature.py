"""Softmax attention that is sharpened by its own entropy, a few rows at a time."""

import torch
from torch import Tensor

from adasparse.functional.differentiable_attention import attention_scores
from adasparse.functional.entmax import entmax
from adasparse.kernels import AttentionProblem

#: Coefficients of the polynomial that gives the factor of the scores, the highest power first.
COEFFICIENTS = (-0.037, 0.481, -2.3, 4.917, -1.791)
#: Rows of no more entropy than this, in nats, are sharp enough.
LOWEST_ENTROPY = 0.5
#: Number of scores that are held at once.
BLOCK_SIZE = 2**22


def adaptive_temperature_attention(problem: AttentionProblem) -> Tensor:
    """Attend with softmax of scores times a factor of at least 1 that depends on the entropy.

    The factor is a polynomial of the entropy that the softmax of a row has without it, a constant
    for gradients. The score matrix is not materialized.

    Args:
        problem: The attention call; its alpha and dropout are ignored.

    Returns:
        ``(b, h, q, e)``.

    References:
        - Veličković et al., [softmax is not enough](https://arxiv.org/abs/2410.01104), 2024.
    """
    b, h, q, _ = problem.query.shape
    k, g = problem.key.shape[2], problem.value.shape[1]
    size = max(1, BLOCK_SIZE // max(1, b * h * k))
    outputs = []
    for start in range(0, q, size):
        stop = min(start + size, q)
        weights = adaptive_temperature_weights(problem, slice(start, stop))
        seen = weights.shape[-1]
        grouped = weights.reshape(b, g, -1, seen) @ problem.value[:, :, :seen]
        outputs.append(grouped.reshape(b, h, stop - start, -1))
    return torch.cat(outputs, 2)


def adaptive_temperature_weights(problem: AttentionProblem, rows: slice | None = None) -> Tensor:
    """Return the weights ``(b, h, r, k)`` of some rows, of all if None.

    Keys after the last of some causal rows are left out of the result.
    """
    if rows is None:
        scores = attention_scores(problem)
    else:
        num_keys = min(rows.stop, problem.key.shape[2]) if problem.is_causal else None
        scores = attention_scores(problem, rows, num_keys=num_keys)
    return sharpened_softmax(scores).to(problem.query.dtype)


def sharpened_softmax(scores: Tensor) -> Tensor:
    """Return the softmax of scores ``(..., k)`` times the factors of their rows."""
    return entmax(scores * inverse_temperature(scores), 1.0)


@torch.no_grad()
def inverse_temperature(scores: Tensor) -> Tensor:
    """Return the factor ``(..., 1)`` of each row of scores ``(..., k)``, at least 1."""
    entropy = torch.special.entr(entmax(scores, 1.0)).sum(-1, keepdim=True)
    factor = torch.zeros_like(entropy)
    for coefficient in COEFFICIENTS:
        factor = factor * entropy + coefficient
    return torch.where(entropy > LOWEST_ENTROPY, factor.clamp(min=1), 1.0)
