"""entmax in PyTorch alone: every device, and differentiable any number of times.

The form of every alpha, with eps = alpha - 1 and u = score - max - c:
``p = exp(log1p(eps u) / eps)`` where ``1 + eps u > 0``, else 0; c makes p sum to one.
"""

import torch
from torch import Tensor

from adasparse.kernels.target import Target

_MAX_STEPS = 100


def _compute_dtype(scores: Tensor, alpha: Tensor) -> torch.dtype:
    """Return float64 where float32 has not enough digits: alpha above 2 is steep at the edge."""
    if scores.dtype == torch.float64:
        return torch.float64
    on_cpu = scores.device.type == "cpu" and alpha.device.type == "cpu"
    if on_cpu and bool(((alpha > 2) | (alpha < 1)).any()):
        return torch.float64
    return torch.float32


def _eps(alpha: Tensor, like: Tensor) -> Tensor:
    return (alpha - 1).to(like).reshape(-1, 1)


def _or_one(x: Tensor) -> Tensor:
    """Replace zeros by ones, for a division whose result is then not used."""
    return torch.where(x == 0, 1.0, x)


def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """Solve for the normalizer by Newton's method inside a shrinking bracket.

    Args:
        scores: ``(rows, n)``; ``-inf`` marks a masked entry.
        alpha: One value or ``(rows,)``, above 0.

    Returns:
        ``(rows, n)`` in the dtype of ``scores``.
    """
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    wide = scores.to(_compute_dtype(scores, alpha))
    eps = _eps(alpha, wide)
    top = wide.amax(-1, keepdim=True)
    bad = wide.isnan().any(-1, keepdim=True) | top.isposinf()
    masked = wide.isneginf()
    z = (wide - torch.where(top.isfinite(), top, 0.0)).clamp(min=torch.finfo(wide.dtype).min)

    def at(c: Tensor) -> tuple[Tensor, Tensor]:
        u = z - c
        t = 1 + eps * u
        inside = (t > 0) & ~masked
        t = torch.where(inside, t, 1.0)
        exponent = torch.where(eps == 0, u, torch.log1p(eps * u) / _or_one(eps))
        p = torch.where(inside, exponent.exp(), 0.0)
        return p, p / t

    log_n = torch.log(torch.tensor(float(scores.shape[-1]), dtype=wide.dtype, device=wide.device))
    low = torch.zeros_like(top)
    high = torch.where(eps == 0, log_n, -torch.expm1(-eps * log_n) / _or_one(eps)).expand_as(low)
    c, width, tolerance = low, high, 8 * torch.finfo(wide.dtype).eps
    may_stop_early = wide.device.type == "cpu"  # elsewhere looking at the values would stall
    for _ in range(_MAX_STEPS):
        p, sigma = at(c)
        mass, slope = p.sum(-1, keepdim=True), sigma.sum(-1, keepdim=True)
        if may_stop_early and bool((((mass - 1).abs() <= tolerance) | ~(mass > 0)).all()):
            break
        log_mass = _or_one(mass).log()
        step = torch.where(eps == 0, log_mass, -torch.expm1(-eps * log_mass) / _or_one(eps))
        low, high = torch.where(mass >= 1, c, low), torch.where(mass <= 1, c, high)
        newton = c + step * mass / _or_one(slope)
        # Up to alpha = 2 Newton's steps never fail; above, the bracket must halve at least.
        is_slow = ((eps > 1) | (eps < 0)) & (high - low > width / 2)
        width = high - low
        is_good = (newton >= low) & (newton <= high) & ~is_slow
        c = torch.where(is_good, newton, (low + high) / 2)
    p, _ = at(c)
    p = p / _or_one(p.sum(-1, keepdim=True))
    return torch.where(bad, float("nan"), p).to(scores.dtype)


def _second_tail(y: Tensor) -> Tensor:
    """``(e^y - 1 - y) / y^2`` for ``|y| < 1``, by its series."""
    tail = torch.zeros_like(y)
    for k in range(18, 1, -1):
        tail = (tail * y + 1) / k
    return tail


def _support_terms(weights: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the support, ``log p`` and ``sigma = p^(2 - alpha)``, both 0 outside of it."""
    support = weights > 0
    log_p = torch.where(support, weights, 1.0).log()
    sigma = torch.where(support, ((1 - eps) * log_p).exp(), 0.0)
    return support, log_p, sigma


def _by_alpha(weights: Tensor, sigma: Tensor, log_p: Tensor, eps: Tensor) -> Tensor:
    """``dp / dalpha`` at a fixed normalizer."""
    y = -eps * log_p
    is_near = y.abs() < 1
    near = -weights * log_p**2 * _second_tail(torch.where(is_near, y, 0.0))
    far = (weights + weights * y - sigma) / _or_one(eps) ** 2
    return torch.where(is_near, near, far)


def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients by scores ``(rows, n)`` and by alpha ``(rows,)``, themselves differentiable."""
    wide = weights.to(_compute_dtype(weights, alpha.detach()))
    eps = _eps(alpha, wide)
    support, log_p, sigma = _support_terms(wide, eps)
    # A gradient that is not finite must not leak out of the support.
    grad = torch.where(support, grad.to(wide.dtype), 0.0)
    slope = _or_one(sigma.sum(-1, keepdim=True))
    mean = (sigma * grad).sum(-1, keepdim=True) / slope
    centered = torch.where(support, grad - mean, 0.0)
    nan = torch.where(wide.isnan(), wide, 0.0)
    grad_scores = (sigma * centered + nan).to(weights.dtype)
    if not with_alpha:
        return grad_scores, None
    grad_alpha = (_by_alpha(wide, sigma, log_p, eps) * centered + nan).sum(-1)
    return grad_scores, grad_alpha.double()


def conjugate(scores: Tensor, weights: Tensor, alpha: Tensor) -> Tensor:
    """``max_p <p, s> - Omega(p)`` per row at its maximum ``weights``, less the row's maximum."""
    eps = _eps(alpha, weights)
    support, log_p, _ = _support_terms(weights, eps)
    u = torch.where(eps == 0, log_p, torch.expm1(eps * log_p) / _or_one(eps))
    z = torch.where(support, scores - scores.amax(-1, keepdim=True), 0.0)
    return (weights * (z - u / (1 + eps))).sum(-1)


def conjugate_by_alpha(weights: Tensor, alpha: Tensor) -> Tensor:
    """``-dOmega(p) / dalpha`` per row at fixed ``weights``; differentiable."""
    eps = _eps(alpha, weights)
    _, log_p, _ = _support_terms(weights, eps)
    y = eps * log_p
    is_near = y.abs() < 1
    # (1 + (y - 1) e^y) / y^2 in terms of the series above, which does not cancel
    small = torch.where(is_near, y, 0.0)
    near = log_p**2 * (1 + (small - 1) * _second_tail(small))
    far = (1 + (y - 1) * y.exp()) / _or_one(eps) ** 2
    u = torch.where(
        is_near, log_p * (1 + small * _second_tail(small)), torch.expm1(y) / _or_one(eps)
    )
    u_by_alpha = torch.where(is_near, near, far)
    return (weights * (u / (1 + eps) - u_by_alpha) / (1 + eps)).sum(-1)


def loss_forward(scores: Tensor, alpha: Tensor, target: Target) -> tuple[Tensor, Tensor]:
    """Return the loss of each row ``(rows,)`` in float64; nothing is kept for the backward."""
    wide = scores.to(_compute_dtype(scores, alpha))
    mass = target.mass(wide)
    # An ignored row may hold anything.
    wide = torch.where(mass.sum(-1, keepdim=True) == 0, 0.0, wide)
    top = wide.amax(-1, keepdim=True)
    distance = torch.where(mass == 0, 0.0, wide - torch.where(top.isneginf(), 0.0, top))
    weights = entmax_forward(wide, alpha)
    above = conjugate(wide, weights, alpha)
    loss = mass.sum(-1) * above - (mass * distance).sum(-1)
    return loss.double(), loss.new_empty(loss.shape[0], 0)


def loss_gradient(
    weights: Tensor, grad: Tensor, alpha: Tensor, target: Target
) -> tuple[Tensor, Tensor]:
    """Gradients by scores and by alpha from the entmax of the scores; differentiable."""
    mass = target.mass(weights)
    total = mass.sum(-1)
    grad = grad.to(weights.dtype)
    # An ignored row may hold anything.
    weights = torch.where(total.unsqueeze(-1) == 0, 0.0, weights)
    grad_scores = grad.unsqueeze(-1) * (total.unsqueeze(-1) * weights - mass)
    return grad_scores, grad * total * conjugate_by_alpha(weights, alpha)


def loss_backward(
    scores: Tensor, state: Tensor, grad: Tensor, alpha: Tensor, target: Target, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients by scores ``(rows, n)`` and alpha ``(rows,)`` from that of each row's loss."""
    weights = entmax_forward(scores.to(_compute_dtype(scores, alpha)), alpha)
    grad_scores, grad_alpha = loss_gradient(weights, grad, alpha, target)
    return grad_scores.to(scores.dtype), grad_alpha.double() if with_alpha else None
