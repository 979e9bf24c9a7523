"""Fenchel-Young losses in PyTorch alone: every device, differentiable any number of times."""

from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.kernels.problem import LossProblem
from adasparse.kernels.torch.rows import (
    compute_dtype,
    entmax_forward,
    excess,
    or_one,
    second_tail,
    support_terms,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedNothing:
    """The backward pass recomputes all it needs."""


def conjugate(scores: Tensor, weights: Tensor, alpha: Tensor) -> Tensor:
    """``max_p <p, s> - Omega(p)`` per row at its maximizer ``weights``, minus the top score."""
    eps = excess(alpha, weights)
    support, log_p, _ = support_terms(weights, eps)
    u = torch.where(eps == 0, log_p, torch.expm1(eps * log_p) / or_one(eps))
    z = torch.where(support, scores - scores.amax(-1, keepdim=True), 0.0)
    return (weights * (z - u / (1 + eps))).sum(-1)


def conjugate_by_alpha(weights: Tensor, alpha: Tensor) -> Tensor:
    """``-dOmega(p) / dalpha`` per row at fixed ``weights``; differentiable."""
    eps = excess(alpha, weights)
    _, log_p, _ = support_terms(weights, eps)
    y = eps * log_p
    is_near = y.abs() < 1
    # (1 + (y - 1) e^y) / y^2 in terms of the series above, which does not cancel
    small = torch.where(is_near, y, 0.0)
    near = log_p**2 * (1 + (small - 1) * second_tail(small))
    far = (1 + (y - 1) * y.exp()) / or_one(eps) ** 2
    u = torch.where(is_near, log_p * (1 + small * second_tail(small)), torch.expm1(y) / or_one(eps))
    u_by_alpha = torch.where(is_near, near, far)
    return (weights * (u / (1 + eps) - u_by_alpha) / (1 + eps)).sum(-1)


def empty_loss_saved(problem: LossProblem) -> SavedNothing:
    """See ``LossKernels.empty_loss_saved``."""
    return SavedNothing()


def loss_forward(problem: LossProblem) -> tuple[Tensor, SavedNothing]:
    """See ``LossKernels.loss_forward``."""
    scores, alpha = problem.scores, problem.alpha
    wide = scores.to(compute_dtype(scores, alpha))
    mass = problem.mass(wide)
    # An ignored row may hold anything.
    wide = torch.where(mass.sum(-1, keepdim=True) == 0, 0.0, wide)
    top = wide.amax(-1, keepdim=True)
    distance = torch.where(mass == 0, 0.0, wide - torch.where(top.isneginf(), 0.0, top))
    weights = entmax_forward(wide, alpha)
    above = conjugate(wide, weights, alpha)
    loss = mass.sum(-1) * above - (mass * distance).sum(-1)
    return loss.double(), SavedNothing()


def loss_gradient(problem: LossProblem, weights: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to scores and to alpha; differentiable.

    Args:
        problem: With alpha of rank 0 or ``(rows,)``.
        weights: entmax of the scores.
        grad: Gradient with respect to the loss of each row ``(rows,)``.
    """
    mass = problem.mass(weights)
    total = mass.sum(-1)
    grad = grad.to(weights.dtype)
    # An ignored row may hold anything.
    weights = torch.where(total.unsqueeze(-1) == 0, 0.0, weights)
    grad_scores = grad.unsqueeze(-1) * (total.unsqueeze(-1) * weights - mass)
    return grad_scores, grad * total * conjugate_by_alpha(weights, problem.alpha)


def loss_backward(
    problem: LossProblem, saved: SavedNothing, grad: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``LossKernels.loss_backward``."""
    scores, alpha = problem.scores, problem.alpha
    weights = entmax_forward(scores.to(compute_dtype(scores, alpha)), alpha)
    grad_scores, grad_alpha = loss_gradient(problem, weights, grad)
    return grad_scores.to(scores.dtype), grad_alpha.double() if with_alpha else None
