# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803, SIM102
"""Sums over values that are not all finite: NaN and infinities count where they have weight.

A product of tiles multiplies a NaN or an infinity by weights of zero as well, so one such value
makes the outputs of every query of a tile NaN or infinite. That shows afterwards, and only then are
the sums done again: over the finite values, and over marks of the others.
"""

import triton
import triton.language as tl

from adasparse.kernels.triton.arguments import decode, size
from adasparse.kernels.triton.dropout import is_kept, row_keys
from adasparse.kernels.triton.forward import first_order, load_eps, open_task, words_of
from adasparse.kernels.triton.heads import dropout_rows, first_row, key_blocks, open_head
from adasparse.kernels.triton.interpreter import dot, narrow
from adasparse.kernels.triton.maps import NOWHERE, weights
from adasparse.kernels.triton.scores import score_tile
from adasparse.kernels.triton.tiles import load_keys, load_queries, load_values, store_rows
from adasparse.kernels.triton.words import count_bits, lowest_bit

#: Marks of values above and below every number; a NaN has both. FALL is more than a tile has keys,
#: so that one sum holds both counts.
RISE = tl.constexpr(1)
FALL = tl.constexpr(128)


@triton.jit
def is_told(output, dim_v, FLAGS: tl.constexpr):
    """Whether the first output of a block of queries tells of a value that is not finite.

    Each value that was visited has reached every query.
    """
    x = tl.arange(0, FLAGS.e)
    told = tl.load(output + x, mask=x < dim_v, other=0.0).to(tl.float32)
    return tl.max(tl.where(tl.abs(told) < float("inf"), 0, 1), 0) > 0


@triton.jit
def split(v):
    """Finite values of a tile, zero elsewhere, and marks of the others."""
    x = v.to(tl.float32)
    finite = tl.where(tl.abs(x) < float("inf"), x, 0.0)
    marks = tl.where(x == float("inf"), 1.0 * RISE, 0.0)
    marks = tl.where(x == float("-inf"), 1.0 * FALL, marks)
    marks = tl.where(x != x, 1.0 * (RISE + FALL), marks)
    return narrow(finite, v.dtype), narrow(marks, v.dtype)


@triton.jit
def add_marks(found, p, marks, PRECISION: tl.constexpr):
    """``found``, and RISE and FALL of each query that gives a weight to a value with that mark."""
    has_weight = narrow(tl.where(p == 0.0, 0.0, 1.0), marks.dtype)
    counts = dot(has_weight, marks, found, PRECISION).to(tl.int32)
    rises = tl.where(counts % FALL > 0, 1.0 * RISE, 0.0)
    return rises + tl.where(counts >= FALL, 1.0 * FALL, 0.0)


@triton.jit
def with_marks(x, found):
    """``x``, but an infinity or NaN where marks were found."""
    x = tl.where(found == RISE, float("inf"), x)
    x = tl.where(found == FALL, float("-inf"), x)
    return tl.where(found == RISE + FALL, float("nan"), x)


@triton.jit
def repair_kernel(
    inputs, sizes, strides, factors, normalizers, words, out, mean,
    FLAGS: tl.constexpr, IS_SAVED: tl.constexpr,
):  # fmt: skip
    """Write the outputs of blocks of queries that saw a NaN or an infinity; leave the others.

    Arguments are those of ``forward.output_kernel`` or ``softmax_kernel``, which have run.
    """
    task = open_task(sizes, FLAGS)
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    first = task.first
    if FLAGS.is_packed:
        if first >= head.num_q:
            return
    at = first_row(head, task.bh, FLAGS) * head.dim_v
    if not is_told(out + at + tl.cast(first, tl.int64) * head.dim_v, head.dim_v, FLAGS):
        return
    i = first + tl.arange(0, FLAGS.block_m)
    exists = i < head.num_q
    eps = load_eps(inputs.eps, head, task.bh, i, FLAGS)
    rows = first_row(head, task.bh, FLAGS) + i
    c = tl.load(normalizers + rows, mask=exists, other=NOWHERE)
    if FLAGS.has_dropout:
        key0, key1 = row_keys(tl.load(inputs.seed), dropout_rows(head, task.bh, i, FLAGS))
        threshold = decode(sizes.drop_threshold).to(tl.uint32)
    q = load_queries(head, first, FLAGS)
    blocks = key_blocks(head, first, FLAGS)
    words = words_of(words, task, size(sizes.num_k), FLAGS)
    acc = tl.full((FLAGS.block_m, FLAGS.e), 0.0, tl.float32)
    acc_sigma = tl.full((FLAGS.block_m, FLAGS.e), 0.0, tl.float32)
    found = tl.full((FLAGS.block_m, FLAGS.e), 0.0, tl.float32)
    total = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    slope = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    if FLAGS.has_sinks:
        total, slope = weights(head.sink, c, eps, head.unit, FLAGS.kind)
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        rest = tl.load(words + w)
        for _ in range(0, count_bits(rest)):
            bit, place = lowest_bit(rest)
            rest = rest ^ bit
            first_key = (w * 32 + place) * FLAGS.block_n
            k = load_keys(head, first_key, FLAGS)
            v, marks = split(load_values(head, first_key, FLAGS))
            s = score_tile(q, k, head, first, first_key, FLAGS, True)
            p, sigma = weights(s, c[:, None], eps[:, None], head.unit, FLAGS.kind)
            total += tl.sum(p, 1)
            slope += tl.sum(sigma, 1)
            if FLAGS.has_dropout:
                j = first_key + tl.arange(0, FLAGS.block_n)
                keep = is_kept(key0, key1, j, threshold)
                p = tl.where(keep, p * factors.keep, 0.0)
                sigma = tl.where(keep, sigma * factors.keep, 0.0)
            acc = dot(narrow(p, v.dtype), v, acc, FLAGS.precision)
            acc_sigma = dot(narrow(sigma, v.dtype), v, acc_sigma, FLAGS.precision)
            found = add_marks(found, p, marks, FLAGS.precision)
    acc, average = first_order(acc, acc_sigma, total, slope, eps, FLAGS.kind)
    acc = with_marks(acc, found)
    store_rows(out + at, acc, first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e)
    if IS_SAVED:
        average = with_marks(average, found)
        store_rows(mean + at, average, first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e)
