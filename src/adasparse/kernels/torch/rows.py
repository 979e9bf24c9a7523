"""entmax in PyTorch alone: every device, and differentiable any number of times.

The form of every alpha, with eps = alpha - 1 and u = score - max - c:
``p = exp(log1p(eps u) / eps)`` where ``1 + eps u > 0``, else 0; c makes p sum to one.
Alpha above 2 is in ``steep.py``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from adasparse.kernels.torch.steep import steep_backward, steep_by_alpha, steep_forward

_MAX_STEPS = 100


def _is_readable(alpha: Tensor) -> bool:
    """Whether the values of alpha may be looked at: elsewhere that stalls, or is impossible."""
    if alpha.device.type != "cpu":
        return False
    while torch._C._functorch.is_functorch_wrapped_tensor(alpha):
        if torch._C._functorch.is_batchedtensor(alpha):
            return False
        alpha = torch._C._functorch.get_unwrapped(alpha)
    return True


def compute_dtype(scores: Tensor, alpha: Tensor) -> torch.dtype:
    """Return float64 where float32 has too few digits: alpha above 2 is steep at the edge."""
    if scores.dtype == torch.float64:
        return torch.float64
    can_read = scores.device.type == "cpu" and _is_readable(alpha)
    if can_read and bool(((alpha > 2) | (alpha < 1)).any()):
        return torch.float64
    return torch.float32


def excess(alpha: Tensor, like: Tensor) -> Tensor:
    """Return eps = alpha - 1 as a column in the dtype of ``like``."""
    return (alpha - 1).to(like).reshape(-1, 1)


def or_one(x: Tensor) -> Tensor:
    """Replace zeros by ones, for a division whose result is then not used."""
    return torch.where(x == 0, 1.0, x)


def _by_steepness(
    alpha: Tensor,
    gentle: Callable[..., tuple[Tensor, ...]],
    steep: Callable[..., tuple[Tensor, ...]],
    *rows: Tensor,
) -> tuple[Tensor, ...]:
    """Apply ``gentle`` to the rows of an alpha up to 2 and ``steep`` to the others.

    Args:
        alpha: One value or ``(rows,)``.
        gentle: Function of tensors ``(rows, ...)`` and alpha that returns such tensors.
        steep: The same.
        rows: Arguments ``(rows, ...)`` of both.
    """
    if not _is_readable(alpha):
        return gentle(*rows, alpha)
    is_steep = alpha.detach() > 2
    if not bool(is_steep.any()):
        return gentle(*rows, alpha)
    if bool(is_steep.all()):
        return steep(*rows, alpha)
    places = [is_steep.logical_not().nonzero().squeeze(-1), is_steep.nonzero().squeeze(-1)]
    found = [
        function(*(x[place] for x in rows), alpha[place])
        for function, place in zip((gentle, steep), places, strict=True)
    ]
    order = torch.cat(places).argsort()
    return tuple(torch.cat(pair)[order] for pair in zip(*found, strict=True))


def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """Solve for the normalizer of each row.

    Args:
        scores: ``(rows, n)``; ``-inf`` marks a masked entry.
        alpha: One value or ``(rows,)``, above 0.

    Returns:
        ``(rows, n)`` in the dtype of ``scores``.
    """
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    wide = scores.to(compute_dtype(scores, alpha))
    (weights,) = _by_steepness(alpha, _gentle_forward, _steep_forward, wide)
    return weights.to(scores.dtype)


def _steep_forward(scores: Tensor, alpha: Tensor) -> tuple[Tensor]:
    return (steep_forward(scores, excess(alpha, scores)),)


def _gentle_forward(wide: Tensor, alpha: Tensor) -> tuple[Tensor]:
    """Solve by Newton's method inside a shrinking bracket.

    Args:
        wide: Scores ``(rows, n)``.
        alpha: One value or ``(rows,)``.
    """
    eps = excess(alpha, wide)
    top = wide.amax(-1, keepdim=True)
    bad = wide.isnan().any(-1, keepdim=True) | top.isposinf()
    masked = wide.isneginf()
    z = (wide - torch.where(top.isfinite(), top, 0.0)).clamp(min=torch.finfo(wide.dtype).min)

    def at(c: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        # Near the edge of the support a weight is the distance to it: counted from there, it keeps
        # its digits. The rest, for which c has none, adds up over many small weights.
        edge = c - 1 / or_one(eps)
        rest_of_edge = (c - (edge + 1 / or_one(eps))) + rest  # exact: c is the smaller one
        t = torch.where(eps == 0, 1.0, eps * ((z - edge) - rest_of_edge))
        inside = (t > 0) & ~masked
        t = torch.where(inside, t, 1.0)
        u = (z - c) - rest
        log_t = torch.where(t < 0.5, t.log(), torch.log1p((eps * u).clamp(min=-0.75)))
        p = torch.where(inside, torch.where(eps == 0, u, log_t / or_one(eps)).exp(), 0.0)
        return p, p / t

    log_n = torch.log(torch.tensor(float(wide.shape[-1]), dtype=wide.dtype, device=wide.device))
    low = torch.zeros_like(top)
    high = torch.where(eps == 0, log_n, -torch.expm1(-eps * log_n) / or_one(eps)).expand_as(low)
    c, width, tolerance = low, high, 8 * torch.finfo(wide.dtype).eps
    rest = torch.zeros_like(c)
    may_stop_early = wide.device.type == "cpu"  # elsewhere looking at the values would stall
    for _ in range(_MAX_STEPS):
        p, sigma = at(c, rest)
        mass, slope = p.sum(-1, keepdim=True), sigma.sum(-1, keepdim=True)
        if may_stop_early and bool((((mass - 1).abs() <= tolerance) | ~(mass > 0)).all()):
            break
        log_mass = or_one(mass).log()
        step = torch.where(eps == 0, log_mass, -torch.expm1(-eps * log_mass) / or_one(eps))
        low, high = torch.where(mass >= 1, c, low), torch.where(mass <= 1, c, high)
        move = rest + step * mass / or_one(slope)
        newton = c + move
        # From 1 to 2 Newton's steps never fail; elsewhere the bracket must halve at least.
        is_slow = ((eps > 1) | (eps < 0)) & (high - low > width / 2)
        width = high - low
        is_good = (newton >= low) & (newton <= high) & ~is_slow
        rest = torch.where(is_good, move - (newton - c), 0.0)
        c = torch.where(is_good, newton, (low + high) / 2)
    else:
        p, _ = at(c, rest)
    p = p / or_one(p.sum(-1, keepdim=True))
    return (torch.where(bad, float("nan"), p),)


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
    grad_scores, grad_alpha = _by_steepness(
        alpha, _gentle_backward, _steep_backward, wide, grad.to(wide.dtype)
    )
    return grad_scores.to(weights.dtype), grad_alpha.double() if with_alpha else None


def _steep_backward(weights: Tensor, grad: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    return steep_backward(weights, grad, excess(alpha, weights))


def _gentle_backward(wide: Tensor, grad: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    eps = excess(alpha, wide)
    support, log_p, sigma = support_terms(wide, eps)
    # A gradient that is not finite must not leak out of the support.
    grad = torch.where(support, grad, 0.0)
    slope = or_one(sigma.sum(-1, keepdim=True))
    mean = (sigma * grad).sum(-1, keepdim=True) / slope
    centered = torch.where(support, grad - mean, 0.0)
    nan = torch.where(wide.isnan(), wide, 0.0)
    grad_alpha = (_by_alpha(wide, sigma, log_p, eps) * centered + nan).sum(-1)
    return sigma * centered + nan, grad_alpha


def entmax_tangent(
    weights: Tensor, tangent: Tensor, alpha: Tensor, alpha_tangent: Tensor | None
) -> Tensor:
    """Return the directional derivative of entmax ``(rows, n)``; differentiable.

    Args:
        weights: entmax of the scores ``(rows, n)``.
        tangent: Direction of the scores.
        alpha: One value or ``(rows,)`` in float64.
        alpha_tangent: Direction of alpha ``(rows, 1)`` or of one value, or None.
    """
    # The derivative with respect to scores is symmetric.
    by_scores, _ = entmax_backward(weights, tangent, alpha, with_alpha=False)
    if alpha_tangent is None:
        return by_scores
    wide = weights.to(compute_dtype(weights, alpha.detach()))
    (by_alpha,) = _by_steepness(alpha, _gentle_by_alpha, _steep_by_alpha, wide)
    return by_scores + (by_alpha * alpha_tangent.to(by_alpha)).to(weights.dtype)


def _steep_by_alpha(weights: Tensor, alpha: Tensor) -> tuple[Tensor]:
    return (steep_by_alpha(weights, excess(alpha, weights)),)


def _gentle_by_alpha(weights: Tensor, alpha: Tensor) -> tuple[Tensor]:
    eps = excess(alpha, weights)
    support, log_p, sigma = support_terms(weights, eps)
    fixed = torch.where(support, _by_alpha(weights, sigma, log_p, eps), 0.0)
    total = fixed.sum(-1, keepdim=True) / or_one(sigma.sum(-1, keepdim=True))
    return (fixed - sigma * total + torch.where(weights.isnan(), weights, 0.0),)
