# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: D417, N803, SIM102
"""Forward kernels: the normalizer of each row, then the weighted values.

``threshold_kernel`` reads the keys twice and writes, per row, a normalizer c that is right or a
little low, and per block of queries the bit mask of the key blocks that can hold support.
``output_kernel`` visits those blocks alone and corrects the remaining error of c to first order,
so that the last step of Newton's method costs no pass. ``softmax_kernel`` is alpha = 1 in one pass.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from adasparse.kernels.triton.arguments import decode, size
from adasparse.kernels.triton.dropout import is_kept, row_keys
from adasparse.kernels.triton.heads import dropout_rows, first_row, key_blocks, open_head
from adasparse.kernels.triton.interpreter import dot, narrow
from adasparse.kernels.triton.maps import (
    ENTMAX15,
    GENERAL,
    LOG2E,
    MASKED,
    NOWHERE,
    SOFTMAX,
    SPARSEMAX,
    newton_step,
    next_normalizer,
    solve_lanes,
    weights,
)
from adasparse.kernels.triton.scores import score_tile
from adasparse.kernels.triton.tiles import load_keys, load_queries, load_values, store_rows
from adasparse.kernels.triton.words import any_bits, count_bits, low_bits, lowest_bit


class Task(NamedTuple):
    """A block of queries of one head."""

    block: Any
    num_blocks: Any
    bh: Any
    b: Any
    h: Any
    first: Any


@triton.jit
def open_task(sizes, FLAGS: tl.constexpr):
    """Block of queries of this program; the last blocks, long if causal, run first."""
    num_blocks = tl.cdiv(size(sizes.num_q), FLAGS.block_m)
    pid = tl.program_id(0)
    block = num_blocks - 1 - pid % num_blocks
    bh = (pid // num_blocks).to(tl.int64)
    num_heads = size(sizes.num_heads)
    return Task(block, num_blocks, bh, bh // num_heads, bh % num_heads, block * FLAGS.block_m)


@triton.jit
def load_eps(eps, head, bh, i, FLAGS: tl.constexpr):
    """``alpha - 1`` of queries ``i``."""
    if FLAGS.kind == SOFTMAX:
        return tl.full((FLAGS.block_m,), 0.0, tl.float32)
    elif FLAGS.kind == ENTMAX15:
        return tl.full((FLAGS.block_m,), 0.5, tl.float32)
    elif FLAGS.kind == SPARSEMAX:
        return tl.full((FLAGS.block_m,), 1.0, tl.float32)
    elif FLAGS.per_query:
        return tl.load(eps + first_row(head, bh, FLAGS) + i, mask=i < head.num_q, other=1.0)
    else:
        return tl.load(eps + bh + i * 0)


@triton.jit
def words_of(words, task, num_k, FLAGS: tl.constexpr):
    """Address of the mask words of a block of queries."""
    k_words = tl.cdiv(tl.cdiv(num_k, FLAGS.block_n), 32)
    return words + (task.bh * task.num_blocks + task.block) * k_words


@triton.jit
def inner_bits(blocks, w):
    """Bits of word ``w`` whose key blocks are visible in full."""
    return low_bits(blocks.edge - w * 32) & ~low_bits(blocks.inner - w * 32)


@triton.jit(do_not_specialize=["step_bound"])
def threshold_kernel(
    inputs, sizes, strides, factors, step_bound, normalizers, words, counts,
    FLAGS: tl.constexpr, IS_COUNTED: tl.constexpr,
):  # fmt: skip
    """Normalizer of each row and mask of each block of queries.

    Args:
        inputs: ``arguments.Inputs``; with ``sizes``, ``strides`` and ``factors`` the problem.
        step_bound: Length of a step of Newton's method, in units of scores, after which the rest
            is left to the correction of the output.
        normalizers: ``(b h, q)`` in float32.
        words: ``(b h, q blocks, k words)`` in int32.
        counts: ``(programs, 2)`` in int32: tiles scored in passes over all keys, and passes over
            the mask; None unless IS_COUNTED.
    """
    task = open_task(sizes, FLAGS)
    if FLAGS.is_mixed:
        if tl.load(inputs.eps + task.bh) == 0.0:
            return
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    first = task.first
    if FLAGS.is_packed:
        if first >= head.num_q:
            return
    i = first + tl.arange(0, FLAGS.block_m)
    exists = i < head.num_q
    eps = load_eps(inputs.eps, head, task.bh, i, FLAGS)
    q = load_queries(head, first, FLAGS)
    blocks = key_blocks(head, first, FLAGS)
    words = words_of(words, task, size(sizes.num_k), FLAGS)
    num_tiles = 0
    unit = head.unit

    # Pass 1: the two greatest scores of each lane, that is of the keys j with equal j % BLOCK_N.
    # That takes two operations a score more than the maximum of the row, without exchange between
    # threads, and these scores hold nearly all of a sparse support.
    top1 = tl.full((FLAGS.block_m, FLAGS.block_n), MASKED, tl.float32)
    top2 = tl.full((FLAGS.block_m, FLAGS.block_n), MASKED, tl.float32)
    if FLAGS.has_sinks:
        top1 = tl.where((tl.arange(0, FLAGS.block_n) == 0)[None, :], head.sink, top1)
    for part in tl.static_range(0 if FLAGS.has_left else 1, 3):
        low = blocks.first if part == 0 else (blocks.inner if part == 1 else blocks.edge)
        high = blocks.inner if part == 0 else (blocks.edge if part == 1 else blocks.stop)
        for t in range(low, high):
            k = load_keys(head, t * FLAGS.block_n, FLAGS)
            s = score_tile(q, k, head, first, t * FLAGS.block_n, FLAGS, part != 1)
            top2 = tl.maximum(top2, tl.minimum(top1, s))
            top1 = tl.maximum(top1, s)
            if IS_COUNTED:
                num_tiles += 1
    c, top, is_dead = solve_lanes(top1, top2, eps, unit, FLAGS.kind)
    is_dead = is_dead | (i >= head.num_q)
    c = tl.where(exists, c, NOWHERE)

    # Pass 2: the mask and, where the map is cheap, one step of Newton over all keys. Sums and bits
    # stay in their lanes; threads exchange them once in 32 tiles.
    margin = 1.0 / (tl.maximum(eps, 1e-20) * unit)
    lowest = tl.maximum(c - margin, 0.5 * MASKED, propagate_nan=tl.PropagateNan.ALL)
    total = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    slope = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    if FLAGS.has_sinks:
        total, slope = weights(head.sink, c, eps, unit, FLAGS.kind)
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        bits = tl.full((FLAGS.block_m, FLAGS.block_n), 0, tl.int32)
        lane_total = tl.full((FLAGS.block_m, FLAGS.block_n), 0.0, tl.float32)
        lane_slope = tl.full((FLAGS.block_m, FLAGS.block_n), 0.0, tl.float32)
        for part in tl.static_range(0 if FLAGS.has_left else 1, 3):
            low = blocks.first if part == 0 else (blocks.inner if part == 1 else blocks.edge)
            high = blocks.inner if part == 0 else (blocks.edge if part == 1 else blocks.stop)
            for t in range(tl.maximum(low, w * 32), tl.minimum(high, w * 32 + 32)):
                k = load_keys(head, t * FLAGS.block_n, FLAGS)
                s = score_tile(q, k, head, first, t * FLAGS.block_n, FLAGS, part != 1)
                # NaN counts as support, so the comparisons are for what is surely outside
                if FLAGS.kind >= GENERAL:
                    outside = s <= lowest[:, None]
                else:
                    p, sigma = weights(s, c[:, None], eps[:, None], unit, FLAGS.kind)
                    lane_total += p
                    lane_slope += sigma
                    outside = sigma == 0.0
                bits |= tl.where(outside, 0, 1 << (t - w * 32))
                if IS_COUNTED:
                    num_tiles += 1
        total += tl.sum(lane_total, 1)
        slope += tl.sum(lane_slope, 1)
        tl.store(words + w, any_bits(any_bits(bits, 1), 0))
    # What a step leaves is about eps step^2 up to alpha 1.5; above, the curvature has no bound.
    bound = tl.where(eps > 0.51, 0.01, tl.rsqrt(tl.maximum(eps, 1e-6))) * step_bound
    bound = tl.where(eps > 1.0, 1e-6, bound)
    low_c = top
    high_c = top + margin
    is_far = 1
    if FLAGS.kind < GENERAL:
        c, low_c, high_c, step = next_normalizer(
            c, low_c, high_c, total, slope, is_dead, eps, unit, FLAGS.kind
        )
        is_far = tl.max(tl.where(step > bound, 1, 0), 0)

    # Further passes over the mask only, while a step was too long.
    tl.debug_barrier()  # one thread stored the words, all read them
    count = 0
    while (is_far > 0) & (count < 40):
        lane_total = tl.full((FLAGS.block_m, FLAGS.block_n), 0.0, tl.float32)
        lane_slope = tl.full((FLAGS.block_m, FLAGS.block_n), 0.0, tl.float32)
        for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
            word = tl.load(words + w)
            inner = inner_bits(blocks, w)
            for is_edge in tl.static_range(2):
                rest = word & ~inner if is_edge else word & inner
                for _ in range(0, count_bits(rest)):
                    bit, place = lowest_bit(rest)
                    rest = rest ^ bit
                    first_key = (w * 32 + place) * FLAGS.block_n
                    k = load_keys(head, first_key, FLAGS)
                    s = score_tile(q, k, head, first, first_key, FLAGS, is_edge)
                    p, sigma = weights(s, c[:, None], eps[:, None], unit, FLAGS.kind)
                    lane_total += p
                    lane_slope += sigma
        total = tl.sum(lane_total, 1)
        slope = tl.sum(lane_slope, 1)
        if FLAGS.has_sinks:
            p, sigma = weights(head.sink, c, eps, unit, FLAGS.kind)
            total += p
            slope += sigma
        c, low_c, high_c, step = next_normalizer(
            c, low_c, high_c, total, slope, is_dead, eps, unit, FLAGS.kind
        )
        is_far = tl.max(tl.where(step > bound, 1, 0), 0)
        count += 1
    if IS_COUNTED:
        tl.store(counts + 2 * tl.program_id(0), num_tiles)
        tl.store(counts + 2 * tl.program_id(0) + 1, count)
    tl.store(normalizers + first_row(head, task.bh, FLAGS) + i, c, mask=exists)


@triton.jit
def first_order(acc, acc_sigma, total, slope, eps, KIND: tl.constexpr):
    """Output corrected to first order, and values averaged with weights sigma, from the sums.

    p(c + delta) = p - sigma delta + O(delta^2), and this delta makes the sum 1. Above alpha = 2
    sigma is no good near the edge of the support: weights are divided by their sum there, and the
    average is zero.
    """
    is_dead = slope == 0.0
    safe = tl.where(is_dead, 1.0, slope)
    delta = tl.where(is_dead, 0.0, (total - 1.0) / safe)
    if KIND >= GENERAL:
        is_steep = eps > 1.0
        acc = acc / tl.where(is_steep & (slope != 0.0), total, 1.0)[:, None]
        delta = tl.where(is_steep, 0.0, delta)
        acc_sigma = tl.where(is_steep[:, None], 0.0, acc_sigma)  # float16 may have overflowed
    return acc - delta[:, None] * acc_sigma, acc_sigma / safe[:, None]


@triton.jit
def output_kernel(
    inputs, sizes, strides, factors, normalizers, words, out, mean,
    FLAGS: tl.constexpr, IS_SAVED: tl.constexpr,
):  # fmt: skip
    """Weighted values of the blocks in the mask.

    Args:
        inputs: As for ``threshold_kernel``, as are ``normalizers`` and ``words``. If IS_SAVED,
            the normalizers take another step.
        out: ``(b h, q, e)``.
        mean: ``(b h, q, e)``, the values averaged with weights sigma; written if IS_SAVED. Zeros
            above alpha = 2.
    """
    task = open_task(sizes, FLAGS)
    if FLAGS.is_mixed:
        if tl.load(inputs.eps + task.bh) == 0.0:
            return
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    first = task.first
    if FLAGS.is_packed:
        if first >= head.num_q:
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
    total = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    slope = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    if FLAGS.has_sinks:
        total, slope = weights(head.sink, c, eps, head.unit, FLAGS.kind)
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        word = tl.load(words + w)
        inner = inner_bits(blocks, w)
        for is_edge in tl.static_range(2):
            rest = word & ~inner if is_edge else word & inner
            for _ in range(0, count_bits(rest)):
                bit, place = lowest_bit(rest)
                rest = rest ^ bit
                first_key = (w * 32 + place) * FLAGS.block_n
                k = load_keys(head, first_key, FLAGS)
                v = load_values(head, first_key, FLAGS)
                s = score_tile(q, k, head, first, first_key, FLAGS, is_edge)
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
    at = first_row(head, task.bh, FLAGS) * head.dim_v
    acc, average = first_order(acc, acc_sigma, total, slope, eps, FLAGS.kind)
    store_rows(out + at, acc, first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e)
    if IS_SAVED:
        is_dead = slope == 0.0
        step = newton_step(tl.where(is_dead, 1.0, total), slope, eps, FLAGS.kind)
        if FLAGS.kind >= GENERAL:
            step = tl.where(eps > 1.0, 0.0, step)
        tl.store(normalizers + rows, c + tl.where(is_dead, 0.0, step) / head.unit, mask=exists)
        store_rows(mean + at, average, first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e)


@triton.jit
def softmax_kernel(
    inputs, sizes, strides, factors, normalizers, words, out, mean,
    FLAGS: tl.constexpr, IS_SAVED: tl.constexpr,
):  # fmt: skip
    """Attention with alpha = 1 in one pass; arguments as for ``output_kernel``, all written."""
    task = open_task(sizes, FLAGS)
    if FLAGS.is_mixed:
        if tl.load(inputs.eps + task.bh) != 0.0:
            return
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    first = task.first
    if FLAGS.is_packed:
        if first >= head.num_q:
            return
    i = first + tl.arange(0, FLAGS.block_m)
    rows = first_row(head, task.bh, FLAGS) + i
    if FLAGS.has_dropout:
        key0, key1 = row_keys(tl.load(inputs.seed), dropout_rows(head, task.bh, i, FLAGS))
        threshold = decode(sizes.drop_threshold).to(tl.uint32)
    q = load_queries(head, first, FLAGS)
    blocks = key_blocks(head, first, FLAGS)
    acc = tl.full((FLAGS.block_m, FLAGS.e), 0.0, tl.float32)
    total = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    top = tl.full((FLAGS.block_m,), MASKED, tl.float32)
    if FLAGS.has_sinks:
        top = tl.where(head.sink == MASKED, top, head.sink)
        total = tl.where(head.sink == MASKED, total, 1.0)
    for part in tl.static_range(0 if FLAGS.has_left else 1, 3):
        low = blocks.first if part == 0 else (blocks.inner if part == 1 else blocks.edge)
        high = blocks.inner if part == 0 else (blocks.edge if part == 1 else blocks.stop)
        for t in range(low, high):
            k = load_keys(head, t * FLAGS.block_n, FLAGS)
            v = load_values(head, t * FLAGS.block_n, FLAGS)
            s = score_tile(q, k, head, first, t * FLAGS.block_n, FLAGS, part != 1)
            new_top = tl.maximum(top, tl.max(s, 1))
            # a row of masked keys alone measures from 0, so that they weigh 0
            base = tl.where(new_top < 0.5 * MASKED, 0.0, new_top)
            p = tl.exp2((s - base[:, None]) * (head.unit * LOG2E))
            fade = tl.exp2((top - base) * (head.unit * LOG2E))
            total = total * fade + tl.sum(p, 1)
            top = new_top
            if FLAGS.has_dropout:
                j = t * FLAGS.block_n + tl.arange(0, FLAGS.block_n)
                p = tl.where(is_kept(key0, key1, j, threshold), p * factors.keep, 0.0)
            acc = dot(narrow(p, v.dtype), v, acc * fade[:, None], FLAGS.precision)
    is_dead = total == 0.0
    safe = tl.where(is_dead, 1.0, total)
    at = first_row(head, task.bh, FLAGS) * head.dim_v
    acc = acc / safe[:, None]
    store_rows(out + at, acc, first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e)
    if IS_SAVED:
        store_rows(mean + at, acc, first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e)
    c = tl.where(is_dead, NOWHERE, top + tl.log(safe) / head.unit)
    tl.store(normalizers + rows, c, mask=i < head.num_q)
    words = words_of(words, task, size(sizes.num_k), FLAGS)
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        word = low_bits(blocks.stop - w * 32) & ~low_bits(blocks.first - w * 32)
        tl.store(words + w, word)
