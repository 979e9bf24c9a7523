"""The oracle: entmax by bisection in float64, with gradients written out by hand."""

import torch
from torch import Tensor

from adasparse.kernels import plain_attention
from adasparse.kernels.problem import AttentionGradients, AttentionProblem


def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """Bisect for the normalizer until the interval holds no other number.

    Args:
        scores: ``(rows, n)`` in float64; ``-inf`` marks a masked entry.
        alpha: One value or ``(rows,)``, any value above 0.

    Returns:
        ``(rows, n)``. Fully masked rows are zero; NaN or ``+inf`` makes its row NaN.
    """
    if scores.dtype != torch.float64:
        raise TypeError(f"the reference works in float64; got {scores.dtype}.")
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    eps = alpha.double().reshape(-1, 1) - 1
    top = scores.amax(-1, keepdim=True)
    bad = scores.isnan().any(-1, keepdim=True) | top.isposinf()
    z = (scores - torch.where(top.isfinite(), top, 0.0)).clamp(min=-torch.finfo(torch.float64).max)
    masked = scores.isneginf()

    def weights_at(c: Tensor) -> Tensor:
        u = z - c
        inside = (1 + eps * u > 0) & ~masked
        exponent = torch.where(eps == 0, u, torch.log1p(eps * u) / torch.where(eps == 0, 1.0, eps))
        return torch.where(inside, exponent.exp(), 0.0)

    n = torch.tensor(float(scores.shape[-1]), dtype=torch.float64)
    low = torch.zeros_like(top)
    high = torch.where(
        eps == 0, n.log(), -torch.expm1(-eps * n.log()) / torch.where(eps == 0, 1.0, eps)
    ).expand_as(low)
    for _ in range(200):
        middle = (low + high) / 2
        above = weights_at(middle).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    weights = weights_at((low + high) / 2)
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total > 0, total, 1.0)
    return torch.where(bad, float("nan"), weights)


def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients by scores ``(rows, n)`` and, if wanted, by alpha ``(rows,)``."""
    eps = alpha.double().reshape(-1, 1) - 1
    support = weights > 0
    log_p = torch.where(support, weights, 1.0).log()
    sigma = torch.where(support, ((1 - eps) * log_p).exp(), 0.0)
    slope = sigma.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    centered = grad - (sigma * grad).sum(-1, keepdim=True) / slope
    grad_scores = torch.where(support, sigma * centered, 0.0)
    if not with_alpha:
        return grad_scores, None
    y = -eps * log_p
    # (e^y - 1 - y) / y^2 by its series where the subtraction would cancel
    term = tail = torch.full_like(y, 0.5)
    for k in range(3, 30):
        term = term * y / k
        tail = tail + term
    safe = torch.where(y.abs() < 1, 2.0, y)
    tail = torch.where(y.abs() < 1, tail, (torch.expm1(safe) - safe) / safe**2)
    by_alpha = torch.where(support, -weights * log_p**2 * tail, 0.0)
    return grad_scores, torch.where(support, by_alpha * centered, 0.0).sum(-1)


def conjugate(scores: Tensor, alpha: Tensor) -> Tensor:
    """``max_p <p, s> - Omega(p)`` per row, Omega the negative Tsallis entropy of order alpha."""
    weights = entmax_forward(scores, alpha)
    eps = alpha.double().reshape(-1, 1) - 1
    support = weights > 0
    log_p = torch.where(support, weights, 1.0).log()
    u = torch.where(eps == 0, log_p, torch.expm1(eps * log_p) / torch.where(eps == 0, 1.0, eps))
    expected = (weights * torch.where(support, scores, 0.0)).sum(-1)
    return expected - (weights * u).sum(-1) / (1 + eps.squeeze(-1))


def attention(
    problem: AttentionProblem, grad: Tensor | None = None
) -> tuple[Tensor, AttentionGradients | None]:
    """Attend with the whole matrix of weights at hand.

    Args:
        problem: In any dtype.
        grad: Gradient by the output ``(b, h, q, e)``, or None.

    Returns:
        The output and, if ``grad`` is given, the gradients by everything; all in float64.
    """
    query, key, value = problem.query.double(), problem.key.double(), problem.value.double()
    (b, h, q, _), (g, k) = query.shape, key.shape[1:3]
    key, value = (x.repeat_interleave(h // g, 1) for x in (key, value))
    i, j = torch.arange(q).unsqueeze(-1), torch.arange(k)
    distance = (i + k - q - j).abs().double()
    scores = problem.scale * query @ key.mT
    if problem.slopes is not None:
        scores = scores - problem.slopes.double().reshape(h, 1, 1) * distance
    if problem.mask is not None and problem.mask.dtype != torch.bool:
        scores = scores + problem.mask.double()
    if problem.mask is not None and problem.mask.dtype == torch.bool:
        scores = scores.masked_fill(~problem.mask, -torch.inf)
    if problem.key_lengths is not None:
        scores = scores.masked_fill(j >= problem.key_lengths.reshape(b, 1, 1, 1), -torch.inf)
    if problem.is_causal:
        scores = scores.masked_fill(j > i, -torch.inf)
    alpha = problem.alpha.double().expand(b, h, q, 1).reshape(-1)
    weights = entmax_forward(scores.reshape(-1, k), alpha).reshape(b, h, q, k)
    factors = plain_attention.dropout_factors(problem)
    factors = torch.ones(()) if factors is None else factors.double()
    output = (factors * weights) @ value
    if grad is None:
        return output, None
    grad = grad.double()
    grad_weights = factors * (grad @ value.mT)
    by_scores, by_alpha = entmax_backward(
        weights.reshape(-1, k), grad_weights.reshape(-1, k), alpha, with_alpha=True
    )
    assert by_alpha is not None
    by_scores = by_scores.reshape(b, h, q, k)
    by_key = problem.scale * by_scores.mT @ query
    by_value = (factors * weights).mT @ grad
    is_bias = problem.mask is not None and problem.mask.dtype != torch.bool
    return output, AttentionGradients(
        query=problem.scale * by_scores @ key,
        key=by_key.reshape(b, g, h // g, k, -1).sum(2),
        value=by_value.reshape(b, g, h // g, k, -1).sum(2),
        alpha=by_alpha.reshape(b, h, q, 1).sum_to_size(problem.alpha.shape),
        mask=by_scores.sum_to_size(problem.mask.shape)
        if is_bias and problem.mask is not None
        else None,
        slopes=None if problem.slopes is None else -(by_scores * distance).sum((0, 2, 3)),
    )
