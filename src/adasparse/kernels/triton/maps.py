# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803, SIM108
"""Weights of alpha-entmax and the search for their normalizer, as functions of Triton kernels.

With eps = alpha - 1, u = s - c and x = 1 + eps u, one formula holds for every alpha:

    p = exp(log1p(eps u) / eps) where x > 0, else 0;    sigma = p / x = p^(1 - eps) = -dp/dc.

Scores come as ``r`` with s = unit r, and c in the same unit, so that a bare dot product needs no
multiplication by the scale. c is never below a score, so u <= 0.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

#: The map to compile. A float alpha of 1, 1.5 or 2 needs neither logarithm nor branch; any other,
#: and every tensor, takes the general map. ``tl.log2`` is one instruction on AMD and about 27 on
#: NVIDIA, where libdevice has the single instruction; the interpreter has no libdevice.
SOFTMAX = tl.constexpr(0)
ENTMAX15 = tl.constexpr(1)
SPARSEMAX = tl.constexpr(2)
GENERAL = tl.constexpr(3)
GENERAL_CUDA = tl.constexpr(4)

#: Score of a masked key. Finite, so that 0 (s - c) is not NaN where eps is 0.
MASKED = tl.constexpr(-1e30)
#: Normalizer of a row that sees no key: every score is outside of its support.
NOWHERE = tl.constexpr(1e30)

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def log2_weight(u, eps, KIND: tl.constexpr, x=None):
    """``log2 p`` for ``eps u > -1``; from ``x``, if given, which is ``1 + eps u`` with more digits.

    The hardware's logarithm is good to 2^-22 near 1, which a small eps would magnify. There a
    polynomial for ``log1p(z) / z`` on [-1/4, 0] replaces it (error 6e-8); further away p is
    negligible wherever eps is small enough for that to matter.
    """
    z = eps * u
    near = 0.45142896804 * z - 0.15294724166
    near = near * z + 0.30200372199
    near = near * z - 0.35977827197
    near = near * z + 0.48091485704
    near = near * z - 0.72134785392
    near = u * (near * z + 1.44269503670)
    if x is None:
        x = 1.0 + z
    if KIND == GENERAL_CUDA:
        far = libdevice.fast_log2f(x)
    else:
        far = tl.log2(x)
    far *= 1.0 / tl.maximum(eps, 1e-20)
    return tl.where(z > -0.25, near, far)


@triton.jit
def weights(r, c, eps, unit, KIND: tl.constexpr):
    """Weights and sigmas; zero outside of the support, NaN where the score is."""
    if KIND == SOFTMAX:
        p = tl.exp2((r - c) * (unit * LOG2E))
        return p, p
    elif KIND == ENTMAX15:
        x = r * (0.5 * unit) + (1.0 - c * (0.5 * unit))
        sigma = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        return sigma * sigma, sigma
    elif KIND == SPARSEMAX:
        x = r * unit + (1.0 - c * unit)
        p = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        return p, tl.where(x <= 0.0, 0.0, 1.0)
    else:
        u = (r - c) * unit
        outside = eps * u <= -1.0
        log2_p = log2_weight(tl.where(outside, 0.0, u), eps, KIND)
        p = tl.where(outside, 0.0, tl.exp2(log2_p))
        sigma = tl.where(outside, 0.0, tl.exp2(log2_p * (1.0 - eps)))
        return p, sigma


@triton.jit
def second_tail(y):
    """``(e^y - 1 - y) / y^2`` for ``|y| < 1``, by its series, which converges factorially."""
    series = 1 / 362880 + y * (1 / 3628800)
    series = 1 / 5040 + y * (1 / 40320 + y * series)
    return 0.5 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120 + y * (1 / 720 + y * series))))


@triton.jit
def weight_by_alpha(p, log2_p, eps):
    """``dp/dalpha`` at a fixed normalizer.

    That is ``-p log(p)^2 (e^y - 1 - y) / y^2`` with ``y = -eps log p``, so ``-p log(p)^2 / 2`` at
    alpha = 1.
    """
    log_p = tl.maximum(log2_p * LN2, -1e4)  # p is 0 below, and the square must not overflow
    y = -eps * log_p
    is_near = y < 1.0
    far = tl.where(is_near, 1.0, y)
    tail = (tl.exp2(-eps * log2_p) - 1.0 - far) / (far * far)
    tail = tl.where(is_near, second_tail(y), tail)
    return -p * log_p * log_p * tail


@triton.jit
def weights_by_alpha(r, c, eps, unit, KIND: tl.constexpr):
    """Weights, sigmas and ``dp/dalpha`` at a fixed normalizer; KIND is a general one."""
    u = (r - c) * unit
    outside = eps * u <= -1.0
    log2_p = log2_weight(tl.where(outside, 0.0, u), eps, KIND)
    p = tl.where(outside, 0.0, tl.exp2(log2_p))
    sigma = tl.where(outside, 0.0, tl.exp2(log2_p * (1.0 - eps)))
    return p, sigma, tl.where(outside, 0.0, weight_by_alpha(p, log2_p, eps))


@triton.jit
def expm1_over(y):
    """``(e^y - 1) / y``, by its series where the subtraction would cancel."""
    series = 1 / 120 + y * (1 / 720 + y * (1 / 5040 + y * (1 / 40320)))
    series = 1.0 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * series)))
    is_near = tl.abs(y) < 0.5
    far = tl.where(is_near, 1.0, y)
    return tl.where(is_near, series, (tl.exp(far) - 1.0) / far)


@triton.jit
def newton_step(total, slope, eps, KIND: tl.constexpr):
    """Step of c by Newton's method on ``(F^eps - 1) / eps``, convex up to alpha = 2.

    From any c it lands at or below the root, and from below the root it only rises.
    """
    slope = tl.where(slope > 0.0, slope, 1.0)
    if KIND == SOFTMAX:
        return tl.log(total)
    elif KIND == ENTMAX15:
        root = tl.sqrt(total)
        return 2.0 * (root - 1.0) * root / slope
    elif KIND == SPARSEMAX:
        return (total - 1.0) / slope
    else:
        log_f = tl.log(tl.maximum(total, 1e-37, propagate_nan=tl.PropagateNan.ALL))
        return log_f * expm1_over(eps * log_f) * tl.exp((1.0 - eps) * log_f) / slope


@triton.jit
def next_normalizer(c, low, high, total, slope, is_dead, eps, unit, KIND: tl.constexpr):
    """Return c after one step, the bracket, and the length of the step in units of scores.

    Above alpha = 2 Newton's method may fail, so the bracket is halved instead.
    """
    step = newton_step(tl.where(is_dead, 1.0, total), slope, eps, KIND)
    if KIND >= GENERAL:
        is_low = total >= 1.0
        low = tl.where(is_low, c, low)
        high = tl.where(is_low, high, c)
        step = tl.where(eps > 1.0, (0.5 * (low + high) - c) * unit, step)
    step = tl.where(is_dead, 0.0, step)
    return c + step / unit, low, high, tl.abs(step)


@triton.jit
def solve_lanes(top1, top2, eps, unit, KIND: tl.constexpr):
    """Normalizer of the scores in two arrays ``(rows, lanes)``, and which rows have none.

    These are some of the scores of a row, so the result is a lower bound for the whole row; above
    alpha = 2 it is the greatest score. A score of +inf makes it NaN.
    """
    top = tl.max(top1, 1)
    is_dead = top < 0.5 * MASKED
    c = tl.where(is_dead, NOWHERE, top)
    step = 1.0
    count = 0
    while (count < 12) & (step > 1e-4):
        p1, sigma1 = weights(top1, c[:, None], eps[:, None], unit, KIND)
        p2, sigma2 = weights(top2, c[:, None], eps[:, None], unit, KIND)
        total = tl.sum(p1, 1) + tl.sum(p2, 1)
        slope = tl.sum(sigma1, 1) + tl.sum(sigma2, 1)
        delta = newton_step(tl.where(is_dead, 1.0, total), slope, eps, KIND)
        delta = tl.where(is_dead | (eps > 1.0), 0.0, tl.maximum(delta, 0.0))
        c += delta / unit
        step = tl.max(delta, 0)
        count += 1
    return tl.where(top == float("inf"), float("nan"), c), top, is_dead
