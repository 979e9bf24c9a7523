"""Fenchel-Young losses of rows by the compiled kernels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.kernels.cpu import native
from adasparse.kernels.cpu.rows import alpha_stride, type_of
from adasparse.kernels.problem import LossProblem


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedLoss:
    """State of the solver for each row, ``(rows, 3)`` in float64."""

    state: Tensor


def empty_loss_saved(problem: LossProblem) -> SavedLoss:
    """See ``LossKernels.empty_loss_saved``."""
    return SavedLoss(
        state=problem.scores.new_empty(problem.scores.shape[0], 3, dtype=torch.float64)
    )


def _target_of(problem: LossProblem) -> "native.extension.Target":
    dtype, shape = problem.scores.dtype, problem.scores.shape
    index, probability, weight = problem.index, problem.probability, problem.weight
    if (index is None) == (probability is None):
        raise ValueError("a loss takes either index or probability.")
    for name, x, expected in (
        ("index", index, shape[:1]),
        ("probability", probability, shape),
        ("weight", weight, shape[1:]),
    ):
        if x is not None and x.shape != expected:
            raise ValueError(f"{name} must be {tuple(expected)}; got {tuple(x.shape)}.")
    return native.extension.Target(
        index=native.address(index, torch.int64),
        probability=native.address(probability, dtype),
        weight=native.address(weight, dtype),
        ignore_index=problem.ignore_index,
        smoothing=problem.label_smoothing,
    )


@native.raises_memory_error
def loss_forward(problem: LossProblem) -> tuple[Tensor, SavedLoss]:
    """See ``LossKernels.loss_forward``; any floating dtype."""
    native.check_available()
    scores, alpha = problem.scores, problem.alpha
    rows, n = scores.shape
    loss = torch.empty(rows, dtype=torch.float64)
    saved = empty_loss_saved(problem)
    native.extension.loss_forward(
        type=type_of(scores),
        scores=native.address(scores),
        loss=native.address(loss),
        state=native.address(saved.state),
        target=_target_of(problem),
        alpha=native.address(alpha, torch.float64),
        alpha_stride=alpha_stride(alpha, rows),
        rows=rows,
        n=n,
        threads=torch.get_num_threads(),
    )
    return loss, saved


@native.raises_memory_error
def loss_backward(
    problem: LossProblem, saved: SavedLoss, grad: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``LossKernels.loss_backward``."""
    native.check_available()
    scores, alpha = problem.scores, problem.alpha
    rows, n = scores.shape
    if grad.shape != (rows,):
        raise ValueError(f"grad must be {(rows,)}; got {tuple(grad.shape)}.")
    grad_scores = native.in_large_pages(torch.empty_like(scores))
    grad_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    native.extension.loss_backward(
        type=type_of(scores),
        scores=native.address(scores),
        state=native.address(saved.state, torch.float64),
        grad=native.address(grad, torch.float64),
        grad_scores=native.address(grad_scores),
        grad_alpha=native.address(grad_alpha),
        target=_target_of(problem),
        alpha=native.address(alpha, torch.float64),
        alpha_stride=alpha_stride(alpha, rows),
        rows=rows,
        n=n,
        threads=torch.get_num_threads(),
    )
    return grad_scores, grad_alpha
