# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""Entmax of rows of any length.

A program reads its rows three to four times, mostly from the cache: for the greatest scores of
each lane, for a step of Newton's method or two, and to write the weights. Scores are counted from
the greatest of the row, and Newton's method runs to the end: weights have no first-order
correction, since that could make them negative.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from adasparse.kernels.triton import launch, tuning
from adasparse.kernels.triton.interpreter import narrow
from adasparse.kernels.triton.launch import eps_on, kind_of
from adasparse.kernels.triton.maps import (
    ENTMAX15,
    GENERAL,
    MASKED,
    SOFTMAX,
    SPARSEMAX,
    log2_weight,
    newton_step,
    next_normalizer,
    solve_lanes,
    weight_by_alpha,
    weights,
)

SIZES = ["num_rows", "n"]


@triton.jit
def load_row_eps(eps, row, num_rows, KIND: tl.constexpr, PER_ROW: tl.constexpr):
    """``alpha - 1`` of some rows; NaN below alpha = 1, which these kernels do not support."""
    if KIND == SOFTMAX:
        return tl.full(row.shape, 0.0, tl.float32)
    elif KIND == ENTMAX15:
        return tl.full(row.shape, 0.5, tl.float32)
    elif KIND == SPARSEMAX:
        return tl.full(row.shape, 1.0, tl.float32)
    else:
        at = row if PER_ROW else row * 0
        loaded = tl.load(eps + at, mask=row < num_rows, other=1.0)
        return tl.where(loaded < 0.0, float("nan"), loaded)


@triton.jit
def load_scores(start, exists, n, first, BLOCK: tl.constexpr):
    """Scores ``(rows, BLOCK)`` from place ``first`` on; MASKED where there are none."""
    j = first + tl.arange(0, BLOCK)
    mask = exists[:, None] & (j < n)[None, :]
    s = tl.load(start[:, None] + j[None, :], mask=mask, other=MASKED).to(tl.float32)
    return tl.where(s < MASKED, MASKED, s)


@triton.jit
def weights_at(z, c, rest, eps, KIND: tl.constexpr):
    """Weights and sigmas at the normalizer ``c + rest``.

    c has no digits for the rest, which would add up over many small weights. The difference to the
    edge of the support is exact where the weight is small.
    """
    if KIND == ENTMAX15:
        x = (z * 0.5 + (1.0 - c * 0.5)) - rest * 0.5
        sigma = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        return sigma * sigma, sigma
    elif KIND == SPARSEMAX:
        x = (z + (1.0 - c)) - rest
        p = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        return p, tl.where(x <= 0.0, 0.0, 1.0)
    elif KIND == SOFTMAX:
        return weights(z, c, eps, 1.0, KIND)
    else:
        u = (z - c) - rest
        # 1 + eps u, without a rounding of the size of 1 where it is small
        reach = 1.0 / tl.maximum(eps, 1e-20)
        edge = reach - c
        x = eps * ((z + edge) - (rest - ((reach - edge) - c)))
        is_near = eps * u > -0.25
        outside = (x <= 0.0) & ~is_near
        x = tl.where(is_near | outside, 1.0, x)
        log2_p = log2_weight(tl.where(outside, 0.0, u), eps, KIND, x)
        p = tl.where(outside, 0.0, tl.exp2(log2_p))
        return p, tl.where(outside, 0.0, tl.exp2(log2_p * (1.0 - eps)))


@triton.jit
def solve_rows(start, exists, n, eps, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalizer of each row in two parts, see ``weights_at``, and the score it is counted from."""
    top1 = tl.full((ROWS, BLOCK), MASKED, tl.float32)
    top2 = tl.full((ROWS, BLOCK), MASKED, tl.float32)
    for first in range(0, n, BLOCK):
        s = load_scores(start, exists, n, first, BLOCK)
        top2 = tl.maximum(top2, tl.minimum(top1, s))
        top1 = tl.maximum(top1, s)
    top = tl.max(top1, 1)
    top = tl.where((top < 0.5 * MASKED) | (top == float("inf")), 0.0, top)
    c, low, is_dead = solve_lanes(top1 - top[:, None], top2 - top[:, None], eps, 1.0, KIND)
    high = low + 1.0 / tl.maximum(eps, 1e-20)
    # Up to alpha 1.5 the next step is about the square of this one, relative to the weights.
    bound = tl.where(eps > 0.51, tl.where(eps > 1.0, 1e-7, 1e-6), 1e-3)
    most_eps: tl.constexpr = 1.0 if KIND >= GENERAL else 0.51
    # Tensors that the loop changes come before its counters: Triton 3.7 drops a counter that only
    # the condition reads, and fails to compile with tensors after it.
    rest = tl.full((ROWS,), 0.0, tl.float32)
    is_far = 1
    count = 0
    while (is_far > 0) & (count < 40):
        lane_total = tl.full((ROWS, BLOCK), 0.0, tl.float32)
        lane_slope = tl.full((ROWS, BLOCK), 0.0, tl.float32)
        for first in range(0, n, BLOCK):
            s = load_scores(start, exists, n, first, BLOCK) - top[:, None]
            p, sigma = weights_at(s, c[:, None], rest[:, None], eps[:, None], KIND)
            lane_total += p
            lane_slope += sigma
        total = tl.sum(lane_total, 1)
        slope = tl.sum(lane_slope, 1)
        if KIND == SOFTMAX:
            c, low, high, step = next_normalizer(
                c, low, high, total, slope, is_dead, eps, 1.0, KIND
            )
        else:
            step = newton_step(tl.where(is_dead, 1.0, total), slope, eps, KIND)
            if KIND >= GENERAL:  # above alpha = 2 the bracket is halved, and there is no rest
                is_low = total >= 1.0
                low = tl.where(is_low, c, low)
                high = tl.where(is_low, high, c)
                step = tl.where(eps > 1.0, 0.5 * (low + high) - c, step)
            step = tl.where(is_dead, 0.0, step)
            move = rest + step
            rest = move - ((c + move) - c)
            c += move
            if KIND >= GENERAL:
                rest = tl.where(eps > 1.0, 0.0, rest)
            step = tl.abs(step)
        is_open = (step > bound) | ((tl.abs(total - 1.0) > 1e-3) & (eps <= most_eps) & ~is_dead)
        is_far = tl.max(tl.where(is_open, 1, 0), 0)
        count += 1
    return c, rest, top


@triton.jit(do_not_specialize=SIZES)
def entmax_kernel(
    scores, eps, out, num_rows, n,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights ``(num_rows, n)`` of contiguous scores."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < num_rows
    e = load_row_eps(eps, row, num_rows, KIND, PER_ROW)
    start = scores + row * n
    c, rest, top = solve_rows(start, exists, n, e, KIND, ROWS, BLOCK)
    for first in range(0, n, BLOCK):
        s = load_scores(start, exists, n, first, BLOCK) - top[:, None]
        p, _ = weights_at(s, c[:, None], rest[:, None], e[:, None], KIND)
        j = first + tl.arange(0, BLOCK)
        mask = exists[:, None] & (j < n)[None, :]
        tl.store((out + row * n)[:, None] + j[None, :], narrow(p, out.dtype.element_ty), mask=mask)


@triton.jit
def load_sigma(start, exists, n, first, eps, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Weights from ``first`` on, their logarithms to base 2 and sigmas, 0 without support."""
    j = first + tl.arange(0, BLOCK)
    mask = exists[:, None] & (j < n)[None, :]
    p = tl.load(start[:, None] + j[None, :], mask=mask, other=0.0).to(tl.float32)
    log2_p = tl.log2(tl.where(p == 0.0, 1.0, p))
    if KIND == SOFTMAX:
        sigma = p
    elif KIND == ENTMAX15:
        sigma = tl.sqrt(p)
    elif KIND == SPARSEMAX:
        sigma = tl.where(p == 0.0, 0.0, tl.where(p > 0.0, 1.0, p))  # NaN stays
    else:
        sigma = tl.where(p == 0.0, 0.0, tl.exp2((1.0 - eps[:, None]) * log2_p))
    return p, log2_p, sigma


@triton.jit(do_not_specialize=SIZES)
def entmax_backward_kernel(
    weights_start, grad, eps, by_scores, by_alpha, num_rows, n,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients from the weights: ``sigma (g - sum(sigma g) / S)``, and that of alpha."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < num_rows
    e = load_row_eps(eps, row, num_rows, KIND, PER_ROW)
    start = weights_start + row * n
    lane_sum = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    lane_slope = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for first in range(0, n, BLOCK):
        j = first + tl.arange(0, BLOCK)
        mask = exists[:, None] & (j < n)[None, :]
        p, _, sigma = load_sigma(start, exists, n, first, e, KIND, BLOCK)
        g = tl.load((grad + row * n)[:, None] + j[None, :], mask=mask, other=0.0).to(tl.float32)
        lane_sum += tl.where(p == 0.0, 0.0, sigma * g)  # a gradient outside must not leak
        lane_slope += sigma
    slope = tl.sum(lane_slope, 1)
    center = tl.sum(lane_sum, 1) / tl.where(slope == 0.0, 1.0, slope)
    lane_alpha = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for first in range(0, n, BLOCK):
        j = first + tl.arange(0, BLOCK)
        mask = exists[:, None] & (j < n)[None, :]
        at = row[:, None] * n + j[None, :]
        p, log2_p, sigma = load_sigma(start, exists, n, first, e, KIND, BLOCK)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.where(p == 0.0, 0.0, g - center[:, None])
        if by_alpha is not None:
            lane_alpha += weight_by_alpha(p, log2_p, e[:, None]) * g
        tl.store(by_scores + at, narrow(sigma * g, by_scores.dtype.element_ty), mask=mask)
    if by_alpha is not None:
        tl.store(by_alpha + row, tl.sum(lane_alpha, 1), mask=exists)


def row_tiles(n: int, kind: int) -> tuple[dict[str, int], int]:
    """Tile of rows, several short ones or part of a long one, and its warps.

    Two variants of each map; the general one, which takes more registers, has smaller tiles.
    """
    is_general = kind >= 3
    if n > 256:
        return {"ROWS": 1, "BLOCK": 1024 if is_general else 2048}, 8
    return ({"ROWS": 8, "BLOCK": 128}, 8) if is_general else ({"ROWS": 16, "BLOCK": 128}, 4)


def row_arguments(alpha: Tensor, device: torch.device, *, is_general: bool) -> dict[str, Any]:
    """Eps, map and whether each row has an alpha of its own."""
    target = tuning.target_of(device)
    kind = launch.general_kind(target) if is_general else kind_of(alpha, target)
    eps = eps_on(device, alpha.reshape(-1)).contiguous() if kind >= 3 else None
    return {"eps": eps, "KIND": kind, "PER_ROW": alpha.numel() != 1}


def run_rows(kernel: Any, shape: torch.Size, arguments: dict[str, Any]) -> None:
    """Launch a kernel over the rows of ``shape``, two-dimensional."""
    num_rows, n = shape
    tiles, warps = row_tiles(n, arguments["KIND"])
    programs = -(-num_rows // tiles["ROWS"])
    named = {**arguments, **tiles, "num_rows": num_rows, "n": n}
    launch.run(kernel, programs, warps=warps, stages=1, **named)


def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """Weights ``(rows, n)`` of contiguous scores; alpha one value or ``(rows,)``, at least 1.

    A fully masked row is zero; NaN or ``+inf`` makes its row NaN.
    """
    out = torch.empty_like(scores)
    arguments = row_arguments(alpha, scores.device, is_general=False)
    run_rows(entmax_kernel, scores.shape, {"scores": scores, "out": out, **arguments})
    return out


def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients with respect to scores ``(rows, n)`` and alpha ``(rows,)``, that in float64."""
    by_scores = torch.empty_like(weights)
    rows = weights.shape[0]
    by_alpha = None
    if with_alpha:
        by_alpha = torch.empty(rows, dtype=torch.float32, device=weights.device)
    arguments = {
        "weights_start": weights,
        "grad": grad.contiguous(),
        "by_scores": by_scores,
        "by_alpha": by_alpha,
        **row_arguments(alpha, weights.device, is_general=with_alpha),
    }
    run_rows(entmax_backward_kernel, weights.shape, arguments)
    return by_scores, None if by_alpha is None else by_alpha.double()
