"""entmax in PyTorch alone: every device, and differentiable any number of times.

The form of every alpha, with eps = alpha - 1 and u = score - max - c:
``p = exp(log1p(eps u) / eps)`` where ``1 + eps u > 0``, else 0; c makes p sum to one.
"""

import torch
from torch import Tensor

_MAX_STEPS = 100


def compute_dtype(scores: Tensor, alpha: Tensor) -> torch.dtype:
    """Return float64 where float32 has too few digits: alpha above 2 is steep at the edge."""
    if scores.dtype == torch.float64:
        return torch.float64
    on_cpu = scores.device.type == "cpu" and alpha.device.type == "cpu"
    if on_cpu and bool(((alpha > 2) | (alpha < 1)).any()):
        return torch.float64
    return torch.float32


def excess(alpha: Tensor, like: Tensor) -> Tensor:
    """Return eps = alpha - 1 as a column in the dtype of ``like``."""
    return (alpha - 1).to(like).reshape(-1, 1)


def or_one(x: Tensor) -> Tensor:
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
    wide = scores.to(compute_dtype(scores, alpha))
    eps = excess(alpha, wide)
    top = wide.amax(-1, keepdim=True)
    bad = wide.isnan().any(-1, keepdim=True) | top.isposinf()
    masked = wide.isneginf()
    z = (wide - torch.where(top.isfinite(), top, 0.0)).clamp(min=torch.finfo(wide.dtype).min)

    def at(c: Tensor) -> tuple[Tensor, Tensor]:
        u = z - c
        t = 1 + eps * u
        inside = (t > 0) & ~masked
        t = torch.where(inside, t, 1.0)
        exponent = torch.where(eps == 0, u, torch.log1p(eps * u) / or_one(eps))
        p = torch.where(inside, exponent.exp(), 0.0)
        return p, p / t

    log_n = torch.log(torch.tensor(float(scores.shape[-1]), dtype=wide.dtype, device=wide.device))
    low = torch.zeros_like(top)
    high = torch.where(eps == 0, log_n, -torch.expm1(-eps * log_n) / or_one(eps)).expand_as(low)
    c, width, tolerance = low, high, 8 * torch.finfo(wide.dtype).eps
    may_stop_early = wide.device.type == "cpu"  # elsewhere looking at the values would stall
    for _ in range(_MAX_STEPS):
        p, sigma = at(c)
        mass, slope = p.sum(-1, keepdim=True), sigma.sum(-1, keepdim=True)
        if may_stop_early and bool((((mass - 1).abs() <= tolerance) | ~(mass > 0)).all()):
            break
        log_mass = or_one(mass).log()
        step = torch.where(eps == 0, log_mass, -torch.expm1(-eps * log_mass) / or_one(eps))
        low, high = torch.where(mass >= 1, c, low), torch.where(mass <= 1, c, high)
        newton = c + step * mass / or_one(slope)
        # Up to alpha = 2 Newton's steps never fail; above, the bracket must halve at least.
        is_slow = ((eps > 1) | (eps < 0)) & (high - low > width / 2)
        width = high - low
        is_good = (newton >= low) & (newton <= high) & ~is_slow
        c = torch.where(is_good, newton, (low + high) / 2)
    p, _ = at(c)
    p = p / or_one(p.sum(-1, keepdim=True))
    return torch.where(bad, float("nan"), p).to(scores.dtype)


def second_tail(y: Tensor) -> Tensor:
    """Return ``(e^y - 1 - y) / y^2`` for ``|y| < 1``, by its series."""
    tail = torch.zeros_like(y)
    for k in range(18, 1, -1):
        tail = (tail * y + 1) / k
    return tail


def support_terms(weights: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the support, ``log p`` and ``sigma = p^(2 - alpha)``, both 0 outside of it."""
    support = weights > 0
    log_p = torch.where(support, weights, 1.0).log()
    sigma = torch.where(support, ((1 - eps) * log_p).exp(), 0.0)
    return support, log_p, sigma


def _by_alpha(weights: Tensor, sigma: Tensor, log_p: Tensor, eps: Tensor) -> Tensor:
    """``dp / dalpha`` at a fixed normalizer."""
    y = -eps * log_p
    is_near = y.abs() < 1
    near = -weights * log_p**2 * second_tail(torch.where(is_near, y, 0.0))
    far = (weights + weights * y - sigma) / or_one(eps) ** 2
    return torch.where(is_near, near, far)


def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``RowKernels.entmax_backward``; the gradients are themselves differentiable."""
    wide = weights.to(compute_dtype(weights, alpha.detach()))
    eps = excess(alpha, wide)
    support, log_p, sigma = support_terms(wide, eps)
    # A gradient that is not finite must not leak out of the support.
    grad = torch.where(support, grad.to(wide.dtype), 0.0)
    slope = or_one(sigma.sum(-1, keepdim=True))
    mean = (sigma * grad).sum(-1, keepdim=True) / slope
    centered = torch.where(support, grad - mean, 0.0)
    nan = torch.where(wide.isnan(), wide, 0.0)
    grad_scores = (sigma * centered + nan).to(weights.dtype)
    if not with_alpha:
        return grad_scores, None
    grad_alpha = (_by_alpha(wide, sigma, log_p, eps) * centered + nan).sum(-1)
    return grad_scores, grad_alpha.double()
