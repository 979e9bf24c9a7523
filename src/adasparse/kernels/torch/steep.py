"""entmax of rows with an alpha above 2, whose slope at the edge of the support is infinite.

For large eps = alpha - 1 a weight is decided by less than the rounding of a normalizer. Nothing is
lost if scores are counted from the smallest one in the support, whose weight w is solved for:
``p = (eps z + w^eps)^(1/eps)`` where ``z >= 0``, else 0, with z the score minus the smallest one.
Differences of scores are known to the last digit, and the sum of p is convex in w and rises with a
slope of at least one.
"""

import math

import torch
from torch import Tensor

_MAX_STEPS = 100


def steep_forward(scores: Tensor, eps: Tensor) -> Tensor:
    """Return the weights ``(rows, n)`` of scores in the compute dtype.

    Args:
        scores: ``(rows, n)``; ``-inf`` marks a masked entry.
        eps: ``(1, 1)`` or ``(rows, 1)``, above 1.
    """
    top = scores.amax(-1, keepdim=True)
    bad = scores.isnan().any(-1, keepdim=True) | top.isposinf()
    scores = torch.where(top.isfinite() & ~bad, scores, 0.0)
    smallest, mass = last_in_support(scores, eps, scores.shape[-1].bit_length())
    z = scores - smallest
    is_above, is_smallest = z > 0, z == 0

    def at(w: Tensor) -> tuple[Tensor, Tensor]:
        base = w**eps
        t = torch.where(is_above, eps * z + base, 1.0).clamp(min=torch.finfo(z.dtype).tiny)
        power = (t.log() / eps).exp()
        p = torch.where(is_above, power, torch.where(is_smallest, w, 0.0))
        return p, torch.where(is_above, base / t * (power / w), is_smallest.to(z.dtype))

    # Newton's method from above, where the other scores are taken at the edge.
    w, tolerance = (1 - mass) / is_smallest.sum(-1, keepdim=True), 8 * torch.finfo(z.dtype).eps
    may_stop_early = scores.device.type == "cpu"  # elsewhere looking at the values would stall
    for _ in range(_MAX_STEPS):
        p, ratio = at(w)
        excess = p.sum(-1, keepdim=True) - 1
        following = w - excess / ratio.sum(-1, keepdim=True)
        is_done = (excess <= tolerance) | ~((following > 0) & (following < w))
        if may_stop_early and bool(is_done.all()):
            break
        w = torch.where(is_done, w, following)
    p, _ = at(w)
    p = torch.where(top.isneginf(), 0.0, p / p.sum(-1, keepdim=True))
    return torch.where(bad, float("nan"), p)


def last_in_support(scores: Tensor, eps: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the smallest score in the support and the mass above it if the edge were there.

    A score is in the support if that mass is below one.

    Args:
        scores: ``(..., n)``.
        eps: Broadcastable to ``(..., 1)``, above 1.
        steps: Number of halvings of the sorted row, at least the bits of ``n``.
    """
    ordered = scores.sort(-1, descending=True).values

    def mass_above(place: Tensor) -> tuple[Tensor, Tensor]:
        score = ordered.gather(-1, place)
        is_above = ordered > score
        gap = torch.where(is_above, ordered - score, 1.0)
        mass = torch.where(is_above, (eps * gap) ** (1 / eps), 0.0).sum(-1, keepdim=True)
        return score, mass

    inside = torch.zeros_like(scores[..., :1], dtype=torch.int64)
    outside = torch.full_like(inside, scores.shape[-1])
    for _ in range(steps):
        middle = (inside + outside) // 2
        is_inside = (middle == inside) | (mass_above(middle)[1] < 1)
        inside, outside = (
            torch.where(is_inside, middle, inside),
            torch.where(is_inside, outside, middle),
        )
    return mass_above(inside)


def steep_backward(weights: Tensor, grad: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to scores and to alpha ``(rows,)``; differentiable.

    ``sigma = p^(1 - eps)`` overflows. With w the smallest weight, ratios ``(w / p)^(eps - 1)`` to
    its sigma do not, and gradients are counted from that of w. One beyond the range of the dtype is
    infinite.
    """
    support = weights > 0
    nan = torch.where(weights.isnan(), weights, 0.0)
    p = torch.where(support, weights, 1.0)
    place = torch.where(support, weights, torch.inf).argmin(-1, keepdim=True)
    log_p = p.log()
    x = torch.where(support, log_p.gather(-1, place) - log_p, 0.0)
    origin = torch.where(support, grad, 0.0).gather(-1, place)
    distance = torch.where(support, grad - origin, 0.0)
    ratio = torch.where(support, ((eps - 1) * x).exp(), 0.0)
    ratios = ratio.sum(-1, keepdim=True)
    ratios = torch.where(ratios == 0, 1.0, ratios)
    mean = (ratio * distance).sum(-1, keepdim=True) / ratios
    exponent = (1 - eps) * log_p
    overflows = exponent > math.log(torch.finfo(weights.dtype).max)
    sigma = torch.where(overflows, torch.inf, torch.where(overflows, 0.0, exponent).exp())

    def steepened(d: Tensor) -> Tensor:
        return torch.where(overflows & (d == 0), 0.0, sigma) * d

    mine = steepened(distance)
    total = mine.sum(-1, keepdim=True)
    is_finite = mine.isfinite() & total.isfinite()
    others = ratio * (torch.where(total.isfinite(), total, 0.0) / ratios)
    beyond = steepened(torch.where(support & ~is_finite, distance - mean, 0.0))
    grad_scores = torch.where(is_finite, mine - others, beyond)
    by_alpha = torch.where(support, _at_fixed_least(p, log_p, x, eps) * (distance - mean), 0.0)
    return grad_scores + nan, (by_alpha + nan).sum(-1)


def _at_fixed_least(p: Tensor, log_p: Tensor, x: Tensor, eps: Tensor) -> Tensor:
    """``dp / dalpha`` at a fixed smallest weight w, with ``x = log(w / p)``."""
    rest = -torch.expm1(eps * x)
    return p / eps * (rest * (1 / eps - log_p) + (1 - rest) * x)


def steep_by_alpha(weights: Tensor, eps: Tensor) -> Tensor:
    """Return the derivative of the weights with respect to alpha, ``(rows, n)``."""
    support = weights > 0
    p = torch.where(support, weights, 1.0)
    place = torch.where(support, weights, torch.inf).argmin(-1, keepdim=True)
    log_p = p.log()
    x = torch.where(support, log_p.gather(-1, place) - log_p, 0.0)
    ratio = torch.where(support, ((eps - 1) * x).exp(), 0.0)
    ratios = ratio.sum(-1, keepdim=True)
    fixed = torch.where(support, _at_fixed_least(p, log_p, x, eps), 0.0)
    total = fixed.sum(-1, keepdim=True) / torch.where(ratios == 0, 1.0, ratios)
    return fixed - ratio * total + torch.where(weights.isnan(), weights, 0.0)
