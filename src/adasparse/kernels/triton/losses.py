# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""The Fenchel-Young loss of entmax and its gradient, each in one kernel.

With z the scores minus the greatest of the row, u = z - c on the support and m the target mass, the
loss of a row is ``M sum(p (z - u / alpha)) - sum(m z)``, M being the sum of m.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from adasparse.kernels.problem import LossProblem
from adasparse.kernels.triton.interpreter import narrow
from adasparse.kernels.triton.maps import LN2, MASKED, expm1_over, second_tail
from adasparse.kernels.triton.rows import (
    SIZES,
    load_row_eps,
    load_scores,
    row_arguments,
    run_rows,
    solve_rows,
    weights_at,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedRows:
    """Numbers of each row that the gradient needs, all ``(rows,)`` in float32.

    Args:
        top: Greatest score, 0 where there is none.
        normalizers: Normalizer, counted from there.
        rests: What the normalizer has no digits for, to be added to it.
        mass: Sum of the target mass.
    """

    top: Tensor
    normalizers: Tensor
    rests: Tensor
    mass: Tensor


@triton.jit
def target_mass(
    index, probability, class_weight, row, exists, n, first, ignore_index, smoothing,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Mass ``(rows, BLOCK)`` of the classes from ``first`` on; 0 in ignored rows."""
    j = first + tl.arange(0, BLOCK)
    mask = exists[:, None] & (j < n)[None, :]
    if index is not None:
        target = tl.load(index + row, mask=exists, other=ignore_index)
        mass = tl.where(target[:, None] == j[None, :], 1.0, 0.0)
        mask = mask & (target != ignore_index)[:, None]
    else:
        mass = tl.load(probability + row[:, None] * n + j[None, :], mask=mask, other=0.0)
        mass = mass.to(tl.float32)
    mass = (1.0 - smoothing) * mass + smoothing / n
    if class_weight is not None:
        mass *= tl.load(class_weight + j, mask=j < n, other=0.0).to(tl.float32)[None, :]
    return tl.where(mask, mass, 0.0)


@triton.jit(do_not_specialize=[*SIZES, "ignore_index", "smoothing"])
def loss_kernel(
    scores, eps, index, probability, class_weight, losses, tops, normalizers, rests, masses,
    num_rows, n, ignore_index, smoothing,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loss, greatest score, normalizer and mass of each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < num_rows
    e = load_row_eps(eps, row, num_rows, KIND, PER_ROW)
    start = scores + row * n
    c, rest, top = solve_rows(start, exists, n, e, KIND, ROWS, BLOCK)
    lane_above = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    lane_mass = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    lane_target = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for first in range(0, n, BLOCK):
        s = load_scores(start, exists, n, first, BLOCK)
        z = s - top[:, None]
        p, _ = weights_at(z, c[:, None], rest[:, None], e[:, None], KIND)
        inside = tl.where(p == 0.0, 0.0, z - (z - c[:, None]) / (1.0 + e[:, None]))
        lane_above += p * inside
        mass = target_mass(index, probability, class_weight, row, exists, n, first, ignore_index,
                           smoothing, BLOCK)  # fmt: skip
        lane_mass += mass
        z = tl.where(s <= MASKED, -float("inf"), z)  # an impossible target costs inf
        lane_target += mass * tl.where(mass == 0.0, 0.0, z)
    mass = tl.sum(lane_mass, 1)
    loss = mass * tl.sum(lane_above, 1) - tl.sum(lane_target, 1)
    tl.store(losses + row, tl.where(mass == 0.0, 0.0, loss), mask=exists)
    tl.store(tops + row, top, mask=exists)
    tl.store(normalizers + row, c, mask=exists)
    tl.store(rests + row, rest, mask=exists)
    tl.store(masses + row, mass, mask=exists)


@triton.jit
def exponent_by_alpha(log_p, eps):
    """``u = (p^eps - 1) / eps`` and its derivative with respect to alpha at a fixed p."""
    y = eps * log_p
    u = log_p * expm1_over(y)
    is_near = y > -1.0
    near = 1.0 + (y - 1.0) * second_tail(tl.where(is_near, y, 0.0))
    far = tl.where(is_near, 1.0, y)
    by_alpha = tl.where(is_near, near, (1.0 + (far - 1.0) * tl.exp(far)) / (far * far))
    return u, log_p * log_p * by_alpha


@triton.jit(do_not_specialize=[*SIZES, "ignore_index", "smoothing"])
def loss_backward_kernel(
    scores, eps, index, probability, class_weight, tops, normalizers, rests, masses, grad,
    by_scores, by_alpha, num_rows, n, ignore_index, smoothing,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradient ``g (M p - m)`` with respect to the scores, and that of alpha, in one pass."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < num_rows
    e = load_row_eps(eps, row, num_rows, KIND, PER_ROW)[:, None]
    start = scores + row * n
    top = tl.load(tops + row, mask=exists, other=0.0)[:, None]
    c = tl.load(normalizers + row, mask=exists, other=0.0)[:, None]
    rest = tl.load(rests + row, mask=exists, other=0.0)[:, None]
    total = tl.load(masses + row, mask=exists, other=0.0)
    g = tl.load(grad + row, mask=exists, other=0.0)
    lane_alpha = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for first in range(0, n, BLOCK):
        j = first + tl.arange(0, BLOCK)
        z = load_scores(start, exists, n, first, BLOCK) - top
        p, _ = weights_at(z, c, rest, e, KIND)
        p = tl.where((total == 0.0)[:, None], 0.0, p)  # an ignored row may hold anything
        mass = target_mass(index, probability, class_weight, row, exists, n, first, ignore_index,
                           smoothing, BLOCK)  # fmt: skip
        if by_alpha is not None:
            u, u_alpha = exponent_by_alpha(tl.log2(tl.where(p == 0.0, 1.0, p)) * LN2, e)
            lane_alpha += p * (u / (1.0 + e) - u_alpha) / (1.0 + e)
        change = g[:, None] * (total[:, None] * p - mass)
        mask = exists[:, None] & (j < n)[None, :]
        at = row[:, None] * n + j[None, :]
        tl.store(by_scores + at, narrow(change, by_scores.dtype.element_ty), mask=mask)
    if by_alpha is not None:
        tl.store(by_alpha + row, g * total * tl.sum(lane_alpha, 1), mask=exists)


def _target(problem: LossProblem) -> dict[str, Any]:
    return {
        "index": problem.index,
        "probability": problem.probability,
        "class_weight": problem.weight,
        "ignore_index": problem.ignore_index,
        "smoothing": float(problem.label_smoothing),
    }


def empty_loss_saved(problem: LossProblem) -> SavedRows:
    """Uninitialized tensors in the form that ``loss_forward`` saves."""
    size = problem.scores.shape[0]
    top, normalizers, rests, mass = (
        torch.empty(size, dtype=torch.float32, device=problem.scores.device) for _ in range(4)
    )
    return SavedRows(top=top, normalizers=normalizers, rests=rests, mass=mass)


def loss_forward(problem: LossProblem) -> tuple[Tensor, SavedRows]:
    """Loss of each row ``(rows,)`` in float64, and what the gradient needs."""
    scores = problem.scores
    saved = empty_loss_saved(problem)
    loss = torch.empty_like(saved.top)
    arguments = {
        "scores": scores,
        "losses": loss,
        "tops": saved.top,
        "normalizers": saved.normalizers,
        "rests": saved.rests,
        "masses": saved.mass,
        **_target(problem),
        **row_arguments(problem.alpha, scores.device, is_general=False),
    }
    run_rows(loss_kernel, scores.shape, arguments)
    return loss.double(), saved


def loss_backward(
    problem: LossProblem, saved: SavedRows, grad: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients with respect to scores ``(rows, n)`` and alpha ``(rows,)``, that in float64."""
    scores = problem.scores
    by_scores = torch.empty_like(scores)
    by_alpha = torch.empty_like(saved.top) if with_alpha else None
    arguments = {
        "scores": scores,
        "tops": saved.top,
        "normalizers": saved.normalizers,
        "rests": saved.rests,
        "masses": saved.mass,
        "grad": grad.float().contiguous(),
        "by_scores": by_scores,
        "by_alpha": by_alpha,
        **_target(problem),
        **row_arguments(problem.alpha, scores.device, is_general=with_alpha),
    }
    run_rows(loss_backward_kernel, scores.shape, arguments)
    return by_scores, None if by_alpha is None else by_alpha.double()
