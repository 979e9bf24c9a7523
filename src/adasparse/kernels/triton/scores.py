# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""Tiles of scores, and gradients through them."""

import triton
import triton.language as tl

from adasparse.kernels.triton.interpreter import dot
from adasparse.kernels.triton.maps import LOG2E, MASKED


@triton.jit
def distance(head, i, j):
    """``|i + k - q - j|`` of queries and keys, as ALiBi counts it."""
    return tl.abs(i[:, None] + (head.num_k - head.num_q) - j[None, :]).to(tl.float32)


@triton.jit
def tanh(x):
    """Hyperbolic tangent, by its series where the quotient would cancel."""
    square = x * x
    near = 62 / 2835 * square - 17 / 315
    near = x + x * square * (square * (near * square + 2 / 15) - 1 / 3)
    size = tl.abs(x)
    fade = tl.exp2(size * (-2.0 * LOG2E))
    far = (1.0 - fade) / (1.0 + fade)
    return tl.where(size < 0.25, near, tl.where(x < 0.0, -far, far))


@triton.jit
def scaled(s, head, FLAGS: tl.constexpr):
    """Dot products times the scale, bounded by ``softcap``; as they are if ``is_raw``."""
    if not FLAGS.is_raw:
        s *= head.scale
    if FLAGS.has_softcap:
        s = head.softcap * tanh(s / head.softcap)
    return s


@triton.jit
def by_dot(ds, x, head, FLAGS: tl.constexpr):
    """Gradient with respect to scaled dot products from that with respect to ``x = scaled``."""
    if FLAGS.has_softcap:
        x = x / head.softcap
        ds = tl.where(ds == 0.0, 0.0, ds * (1.0 - x * x))  # masked products may be NaN
    return ds


@triton.jit
def finite_where_masked(x, FLAGS: tl.constexpr, IS_EDGE: tl.constexpr):
    """Queries or keys of a tile as factors of a gradient: zeros for NaN and infinities.

    Those that are not masked have made the normalizers of their rows NaN, and so the gradients.
    """
    if FLAGS.mask == 1 or (IS_EDGE and (FLAGS.has_left or FLAGS.has_right)):
        return tl.where(tl.abs(x.to(tl.float32)) < float("inf"), x, 0.0)
    else:
        return x


@triton.jit
def finish_scores(
    s, head, slope, i, j, first, first_key, mask_offsets, FLAGS: tl.constexpr,
    IS_EDGE: tl.constexpr,
):  # fmt: skip
    """Scores of queries ``i`` and keys ``j`` from ``scaled``; MASKED where not visible.

    ``slope`` is one number or a column of them; ``mask_offsets`` lead from the mask's row ``first``
    to those of the tile.

    Without IS_EDGE every query sees every key of the tile as far as lengths and windows go. The
    compiler has to know it: an ``if`` at run time between two products makes it lay out the
    scores for the first product alone, for a third more instructions.
    """
    if FLAGS.has_slopes:
        s -= slope * distance(head, i, j)
    if FLAGS.mask != 0:
        exists = (i < head.num_q)[:, None] & (j < head.end)[None, :]
        start = head.mask + tl.cast(first, tl.int64) * head.mask_stride_q
        start += tl.cast(first_key, tl.int64) * head.mask_stride_k
        at = mask_offsets[:, None] + ((j - first_key) * head.mask_stride_k)[None, :]
        if FLAGS.mask == 1:
            s = tl.where(tl.load(start + at, mask=exists, other=0) != 0, s, MASKED)
        else:
            s += tl.load(start + at, mask=exists, other=0.0).to(tl.float32)
            s = tl.where(s < MASKED, MASKED, s)  # -inf; NaN stays
    if IS_EDGE:
        visible = (j < head.end)[None, :]
        if FLAGS.has_left:
            visible = visible & (j[None, :] >= i[:, None] - head.left)
        if FLAGS.has_right:
            visible = visible & (j[None, :] <= i[:, None] + head.right)
        s = tl.where(visible, s, MASKED)
    return s


@triton.jit
def score_tile(q, k, head, first, first_key, FLAGS: tl.constexpr, IS_EDGE: tl.constexpr):
    """Scores of the queries from ``first`` on and the keys from ``first_key`` on."""
    s, _ = score_tile_and_product(q, k, head, first, first_key, FLAGS, IS_EDGE)
    return s


@triton.jit
def score_tile_and_product(
    q, k, head, first, first_key, FLAGS: tl.constexpr, IS_EDGE: tl.constexpr
):
    """``score_tile``, and ``scaled`` products for ``by_dot``."""
    x = tl.arange(0, FLAGS.block_m)
    j = first_key + tl.arange(0, FLAGS.block_n)
    product = scaled(dot(q, tl.trans(k), None, FLAGS.precision), head, FLAGS)
    offsets = x * head.mask_stride_q
    s = finish_scores(
        product, head, head.slope, first + x, j, first, first_key, offsets, FLAGS, IS_EDGE
    )
    return s, product
