"""entmax of any alpha, normmax and budgets: ``entmax.root_finding`` of the ``entmax`` package."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adasparse.compat.entmax.arguments import can_branch, check_hint, per_row
from adasparse.functional import entmax
from adasparse.functional.arguments import check_scores
from adasparse.functional.entmax import entmax_from

_MAX_STEPS = 50
_CHUNK = 1 << 18  # entries at a time, so that what is in between stays in the cache


def sparsemax_bisect(
    X: Tensor, dim: int = -1, n_iter: int | None = 50, ensure_sum_one: bool = True
) -> Tensor:
    """Return what ``sparsemax`` returns.

    Args:
        X: Scores; ``-inf`` marks a masked entry.
        dim: Dimension to normalize.
        n_iter: Without effect: the result is exact to the precision of ``X``.
        ensure_sum_one: Without effect: the result sums to one.

    Returns:
        Same shape and dtype as ``X``; fully masked rows are all zero.
    """
    check_hint("n_iter", n_iter)
    return entmax(X, 2.0, dim)


def entmax_bisect(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    n_iter: int | None = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """Return the probabilities of alpha-entmax.

    Args:
        X: Scores; ``-inf`` marks a masked entry.
        alpha: At least 0. 1 is softmax, 2 is sparsemax; below 1 tails are heavier than those of
            softmax. A tensor must broadcast against ``X`` and have size 1 along ``dim``; it
            receives gradients.
        dim: Dimension to normalize.
        n_iter: Without effect: the result is exact to the precision of ``X``.
        ensure_sum_one: Without effect: the result sums to one.

    Returns:
        Same shape and dtype as ``X``; fully masked rows are all zero.

    Example:
        >>> entmax_bisect(torch.tensor([1.0, 0.5, -1.0]), alpha=1.25)
        tensor([0.6315, 0.3451, 0.0235])
    """
    check_hint("n_iter", n_iter)
    if isinstance(alpha, Tensor) and not alpha.is_floating_point():
        alpha = alpha.double()
    return entmax_from(X, alpha, dim, lowest=0.0)


def _solve(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    low: Tensor,
    high: Tensor,
    scale: Tensor,
) -> Tensor:
    """Find where a decreasing function is zero, by Newton's method inside a shrinking bracket.

    Args:
        evaluate: Value and negative slope of the function at a point.
        start: ``(..., 1)``, the first point; where it is outside of the bracket, ``low`` is.
        low: ``(..., 1)``, where the function is not negative.
        high: ``(..., 1)``, where it is not positive.
        scale: ``(..., 1)``, the size of the numbers that the value is the difference of.
    """
    point = torch.where((start >= low) & (start <= high), start, low)
    stride = high - low
    tolerance = 8 * torch.finfo(low.dtype).eps
    may_look = can_branch(low)
    for _ in range(_MAX_STEPS):
        value, slope = evaluate(point)
        is_open = value.abs() > tolerance * (scale + slope * point.abs())
        if may_look and not bool(is_open.any()):
            break
        low, high = torch.where(value >= 0, point, low), torch.where(value <= 0, point, high)
        newton = point + value / slope
        # Steps that do not get shorter may go to and fro: bisect instead.
        is_good = (newton >= low) & (newton <= high) & ((newton - point).abs() <= 0.75 * stride)
        after = torch.where(is_good, newton, (low + high) / 2)
        stride = (after - point).abs()
        point = torch.where(is_open, after, point)
    return point


def _in_chunks(
    function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], X: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply ``function`` in wide precision to ``X`` ``(..., n)`` and ``value`` ``(..., 1)``."""
    n = X.shape[-1]
    rows, values = X.reshape(-1, n), value.to(X.device).reshape(-1, 1)
    size = max(_CHUNK // n, 1) if can_branch(X) else rows.shape[0]
    parts = [
        function(_widen(x), _widen(v))
        for x, v in zip(torch.split(rows, size), torch.split(values, size), strict=True)
    ]
    weights = torch.cat([w.to(X.dtype) for w, _ in parts]).view(X.shape)
    return weights, torch.cat([c for _, c in parts]).view(value.shape)


def _widen(X: Tensor) -> Tensor:
    """``X`` in float64, on devices without it in float32: the edge of the support is steep."""
    return X.float() if X.device.type == "mps" else X.double()


def _solve_normmax(X: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities, and ``max_p <p, x> - ||p|| + 1``.

    On the support ``x - tau = (p / ||p||)^(alpha - 1)``. With ``beta = alpha / (alpha - 1)``, then,
    ``(p / ||p||)^alpha = (x - tau)^beta``; these sum to one, so they are the entmax of ``beta x``
    with ``1 + 1 / beta`` for its alpha. The maximum is tau + 1.
    """
    is_corner = alpha <= 1  # then the norm is concave and the best point is a corner
    alpha = torch.where(is_corner, 2.0, alpha)
    beta = alpha / (alpha - 1)
    top = X.amax(-1, keepdim=True)
    z = X - torch.where(top.isfinite(), top, 0.0)
    powers = entmax(beta * z, 1 + 1 / beta)
    rise = -torch.expm1(powers.amax(-1, keepdim=True).log() / beta)
    is_corner = is_corner & top.isfinite()
    weights = torch.where(is_corner, (z == 0).to(z), powers ** (1 / alpha))
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total), top + torch.where(is_corner, 0.0, rise)


class _Normmax(torch.autograd.Function):
    """Over the last dimension: probabilities, and ``max_p <p, x> - ||p|| + 1`` unrounded."""

    @staticmethod
    def forward(X: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        return _in_chunks(_solve_normmax, X, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[0], inputs[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_conjugate: Tensor | None
    ) -> tuple[Tensor, None]:
        weights, alpha = ctx.saved_tensors
        p = _widen(weights)
        grad_scores = torch.zeros_like(p)
        if grad is not None:
            grad_scores = _normmax_backward(p, _widen(grad), _widen(alpha.to(p.device)))
        if grad_conjugate is not None:
            grad_scores = grad_scores + p * grad_conjugate
        return grad_scores.to(weights.dtype), None


def normmax_and_conjugate(X: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Return normmax over the last dimension, and ``max_p <p, x> - ||p|| + 1`` unrounded.

    Args:
        X: Scores ``(..., n)``.
        alpha: Order of the norm ``(..., 1)``, as ``per_row`` returns it.
    """
    return _Normmax.apply(X, alpha)  # type: ignore[no-any-return]


def _normmax_backward(p: Tensor, grad: Tensor, alpha: Tensor) -> Tensor:
    """``(I - p 1') diag(p / v) (I - 1 p') grad / (alpha - 1)``, in differentiable operations.

    With ``v = (p / ||p||)^(alpha - 1)``, the distance of a score from the threshold.
    """
    support = (p > 0) & (alpha > 1)
    eps = torch.where(alpha > 1, alpha - 1, 1.0)
    log_p = torch.where(support, p, 1.0).log()
    log_norm = torch.where(support, (1 + eps) * log_p, -torch.inf).logsumexp(-1, keepdim=True)
    v = torch.where(support, eps * (log_p - log_norm / (1 + eps)), 0.0).exp()
    sigma = torch.where(support, p / (eps * v), 0.0)
    grad = torch.where(support, grad, 0.0)
    centered = sigma * (grad - (p * grad).sum(-1, keepdim=True))
    return centered - p * centered.sum(-1, keepdim=True)


def _solve_budget(X: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """Scores less a threshold, cut to 0..1, that sum to the budget, and the threshold."""
    masked = X.isneginf()
    size = X.shape[-1] - masked.sum(-1, keepdim=True).to(X)
    budget = budget.clamp(min=0).minimum(size)
    top = X.amax(-1, keepdim=True)
    share = budget / size.clamp(min=1)
    low = torch.where(masked, torch.inf, X).amin(-1, keepdim=True) - share
    low, high = torch.where(size == 0, 0.0, low), torch.where(size == 0, 0.0, top - share)

    weights, active = torch.empty_like(X), torch.empty_like(X)

    def evaluate(tau: Tensor) -> tuple[Tensor, Tensor]:
        torch.sub(X, tau, out=weights).clamp_(0, 1)
        excess = weights.sum(-1, keepdim=True) - budget
        torch.ceil(weights, out=active).sub_(weights.floor_())
        return excess, active.sum(-1, keepdim=True)

    # Without the cut at 1 the weights over the budget are the sparsemax of the scores over it.
    unit = torch.where(budget > 0, budget, 1.0)
    uncut = unit * entmax((X / unit).float(), 2.0).amax(-1, keepdim=True)
    tau = _solve(evaluate, top - uncut, low, high, 1 + budget)

    largest = torch.finfo(X.dtype).max
    tau = torch.where(budget > 0, tau, largest)
    tau = torch.where(budget < size, tau, -largest)
    tau = torch.where(top.isnan() | top.isposinf(), torch.nan, tau)
    return torch.sub(X, tau, out=weights).clamp_(0, 1), tau


class _Budget(torch.autograd.Function):
    """Over the last dimension: scores less a threshold, cut to 0..1, that sum to the budget."""

    @staticmethod
    def forward(X: Tensor, budget: Tensor) -> Tensor:
        return _in_chunks(_solve_budget, X, budget)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        active = (weights > 0) & (weights < 1)
        wide = torch.where(active, _widen(grad), 0.0)
        mean = wide.sum(-1, keepdim=True) / active.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(active, wide - mean, 0.0).to(weights.dtype), None


def _along(
    dim: int, function: Any, X: Tensor, name: str, value: float | Tensor, n_iter: int | None
) -> Tensor:
    """Apply ``function`` to ``X`` and the argument ``name`` along ``dim``."""
    check_hint("n_iter", n_iter)
    dim = check_scores(X, dim)
    if X.dim() == 0:
        return _along(0, function, X.reshape(1), name, value, n_iter).reshape(())
    value = per_row(name, value, X, dim)
    if X.numel() == 0:
        return X.clone()
    weights: Tensor = function(X.movedim(dim, -1), value)
    return weights.movedim(-1, dim)


def normmax_bisect(
    X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50
) -> Tensor:
    """Return the probabilities p that maximize ``<p, x> - ||p||``, the norm being that of alpha.

    Args:
        X: Scores; ``-inf`` marks a masked entry.
        alpha: Order of the norm; the larger, the more equal the probabilities in the support.
            Up to 1 the largest score takes all, shared among equals. A tensor must broadcast
            against ``X`` and have size 1 along ``dim``; it receives no gradients.
        dim: Dimension to normalize.
        n_iter: Without effect: the result is exact to the precision of ``X``.

    Returns:
        Same shape and dtype as ``X``; fully masked rows are all zero, and a row that holds NaN or
        ``+inf`` is all NaN.

    Example:
        >>> normmax_bisect(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6890, 0.3110, 0.0000])
    """
    return _along(dim, lambda x, a: normmax_and_conjugate(x, a)[0], X, "alpha", alpha, n_iter)


def budget_bisect(
    X: Tensor, budget: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50
) -> Tensor:
    """Return the numbers from 0 to 1 nearest to the scores that sum to the budget.

    Args:
        X: Scores; ``-inf`` marks a masked entry.
        budget: The sum. Below 0 it counts as 0, and above the number of unmasked entries as that
            number. A tensor must broadcast against ``X`` and have size 1 along ``dim``; it
            receives no gradients.
        dim: Dimension to sum over.
        n_iter: Without effect: the result is exact to the precision of ``X``.

    Returns:
        Same shape and dtype as ``X``; fully masked rows are all zero, and a row that holds NaN or
        ``+inf`` is all NaN.

    Example:
        >>> budget_bisect(torch.tensor([1.0, 0.5, -1.0]), budget=1.8)
        tensor([1.0000, 0.8000, 0.0000])
    """
    return _along(dim, _Budget.apply, X, "budget", budget, n_iter)


class SparsemaxBisectFunction:
    """For code that calls ``SparsemaxBisectFunction.apply``."""

    apply = staticmethod(sparsemax_bisect)


class EntmaxBisectFunction:
    """For code that calls ``EntmaxBisectFunction.apply``."""

    apply = staticmethod(entmax_bisect)


class NormmaxBisectFunction:
    """For code that calls ``NormmaxBisectFunction.apply``."""

    apply = staticmethod(normmax_bisect)


class BudgetBisectFunction:
    """For code that calls ``BudgetBisectFunction.apply``."""

    apply = staticmethod(budget_bisect)


class SparsemaxBisect(nn.Module):
    """Module form of ``sparsemax_bisect``.

    Args:
        dim: Dimension to normalize.
        n_iter: Without effect.
    """

    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.n_iter = n_iter

    def forward(self, X: Tensor) -> Tensor:
        """See ``sparsemax_bisect``."""
        return sparsemax_bisect(X, self.dim, self.n_iter)


class EntmaxBisect(nn.Module):
    """Module form of ``entmax_bisect``.

    Args:
        alpha: A number or a tensor; a parameter is registered and so trained.
        dim: Dimension to normalize.
        n_iter: Without effect.
    """

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int | None = 50) -> None:
        super().__init__()
        self.alpha = alpha
        self.dim = dim
        self.n_iter = n_iter

    def forward(self, X: Tensor) -> Tensor:
        """See ``entmax_bisect``."""
        return entmax_bisect(X, self.alpha, self.dim, self.n_iter)


class NormmaxBisect(nn.Module):
    """Module form of ``normmax_bisect``.

    Args:
        alpha: A number or a tensor.
        dim: Dimension to normalize.
        n_iter: Without effect.
    """

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50) -> None:
        super().__init__()
        self.alpha = alpha
        self.dim = dim
        self.n_iter = n_iter

    def forward(self, X: Tensor) -> Tensor:
        """See ``normmax_bisect``."""
        return normmax_bisect(X, self.alpha, self.dim, self.n_iter)


class BudgetBisect(nn.Module):
    """Module form of ``budget_bisect``.

    Args:
        budget: A number or a tensor.
        dim: Dimension to sum over.
        n_iter: Without effect.
    """

    def __init__(self, budget: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50) -> None:
        super().__init__()
        self.budget = budget
        self.dim = dim
        self.n_iter = n_iter

    def forward(self, X: Tensor) -> Tensor:
        """See ``budget_bisect``."""
        return budget_bisect(X, self.budget, self.dim, self.n_iter)
