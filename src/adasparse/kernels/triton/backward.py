# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: D417, N803, SIM102
"""Backward kernels over the blocks of the mask; every sum has one owner and one order.

With g the gradient with respect to the weights, sigma = -dp/dc and S its sum,
dS = sigma (g - delta), where delta = sum(sigma g) / S = <dO, sum(sigma V) / S>. The forward saved
the second factor, but for alpha above 2: there sigma has no bound at the edge of the support, where
g - delta is all rounding unless both come from the same products, see ``steep_kernel``.
"""

import triton
import triton.language as tl

from adasparse.kernels.triton.arguments import decode, size
from adasparse.kernels.triton.dropout import is_kept, row_keys
from adasparse.kernels.triton.forward import inner_bits, load_eps, open_task, words_of
from adasparse.kernels.triton.heads import dropout_rows, first_row, key_blocks, open_head
from adasparse.kernels.triton.interpreter import dot, narrow
from adasparse.kernels.triton.maps import GENERAL, NOWHERE, weights, weights_by_alpha
from adasparse.kernels.triton.scores import (
    by_dot,
    distance,
    finite_where_masked,
    score_tile,
    score_tile_and_product,
)
from adasparse.kernels.triton.tiles import (
    load_keys,
    load_queries,
    load_rows,
    load_values,
    store_rows,
)
from adasparse.kernels.triton.words import count_bits, low_bits, lowest_bit


@triton.jit
def centered(g, delta, p):
    """``g - delta``, zero where the weight is: there g may be that of a NaN or an infinity."""
    return tl.where(p == 0.0, 0.0, g - delta)


@triton.jit
def steep_kernel(
    inputs, sizes, strides, factors, normalizers, words, grad, deltas, FLAGS: tl.constexpr,
):  # fmt: skip
    """Write delta of the rows with alpha above 2, by a pass over the mask; leave the others."""
    task = open_task(sizes, FLAGS)
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    first = task.first
    if FLAGS.is_packed:
        if first >= head.num_q:
            return
    i = first + tl.arange(0, FLAGS.block_m)
    exists = i < head.num_q
    eps = load_eps(inputs.eps, head, task.bh, i, FLAGS)
    if tl.max(eps, 0) <= 1.0:
        return
    rows = first_row(head, task.bh, FLAGS) + i
    c = tl.load(normalizers + rows, mask=exists, other=NOWHERE)
    if FLAGS.has_dropout:
        key0, key1 = row_keys(tl.load(inputs.seed), dropout_rows(head, task.bh, i, FLAGS))
        threshold = decode(sizes.drop_threshold).to(tl.uint32)
    q = load_queries(head, first, FLAGS)
    at = first_row(head, task.bh, FLAGS) * head.dim_v
    do = load_rows(grad + at, head.dim_v, first, head.num_q, head.dim_v,
                   FLAGS.block_m, FLAGS.e, FLAGS.has_pad_v)  # fmt: skip
    blocks = key_blocks(head, first, FLAGS)
    words = words_of(words, task, size(sizes.num_k), FLAGS)
    total = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    slope = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    if FLAGS.has_sinks:  # its value is zero, so it has no part in the total
        slope += weights(head.sink, c, eps, head.unit, FLAGS.kind)[1]
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        rest = tl.load(words + w)
        for _ in range(0, count_bits(rest)):
            bit, place = lowest_bit(rest)
            rest = rest ^ bit
            first_key = (w * 32 + place) * FLAGS.block_n
            k = load_keys(head, first_key, FLAGS)
            v = load_values(head, first_key, FLAGS)
            s = score_tile(q, k, head, first, first_key, FLAGS, True)
            g = dot(do, tl.trans(v), None, FLAGS.precision)
            if FLAGS.has_dropout:
                j = first_key + tl.arange(0, FLAGS.block_n)
                g = tl.where(is_kept(key0, key1, j, threshold), g * factors.keep, 0.0)
            p, sigma = weights(s, c[:, None], eps[:, None], head.unit, FLAGS.kind)
            total += tl.sum(sigma * centered(g, 0.0, p), 1)
            slope += tl.sum(sigma, 1)
    delta = total / tl.where(slope == 0.0, 1.0, slope)
    tl.store(deltas + rows, delta, mask=exists & (eps > 1.0))


@triton.jit
def query_kernel(
    inputs, sizes, strides, factors, normalizers, words, mean, grad,
    by_query, deltas, by_alpha, by_slope, by_sink,
    FLAGS: tl.constexpr,
):  # fmt: skip
    """Gradients that belong to queries.

    Args:
        inputs: As for the forward kernels, as are ``normalizers``, ``words`` and ``mean``.
        grad: ``(b h, q, e)``, the gradient with respect to the output.
        by_query: ``(b h, q, d)``.
        deltas: ``(b h, q)`` in float32, for the other kernels; read from ``steep_kernel`` above
            alpha = 2.
        by_alpha: ``(b h, q)`` in float32, or None.
        by_slope: ``(b h, q)`` in float32, or None.
        by_sink: ``(b h, q)`` in float32, or None.
    """
    task = open_task(sizes, FLAGS)
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    first = task.first
    if FLAGS.is_packed:
        if first >= head.num_q:
            return
    i = first + tl.arange(0, FLAGS.block_m)
    exists = i < head.num_q
    rows = first_row(head, task.bh, FLAGS) + i
    eps = load_eps(inputs.eps, head, task.bh, i, FLAGS)
    c = tl.load(normalizers + rows, mask=exists, other=NOWHERE)
    if FLAGS.has_dropout:
        key0, key1 = row_keys(tl.load(inputs.seed), dropout_rows(head, task.bh, i, FLAGS))
        threshold = decode(sizes.drop_threshold).to(tl.uint32)
    q = load_queries(head, first, FLAGS)
    at = first_row(head, task.bh, FLAGS) * head.dim_v
    do = load_rows(grad + at, head.dim_v, first, head.num_q, head.dim_v,
                   FLAGS.block_m, FLAGS.e, FLAGS.has_pad_v)  # fmt: skip
    average = load_rows(mean + at, head.dim_v, first, head.num_q, head.dim_v,
                        FLAGS.block_m, FLAGS.e, FLAGS.has_pad_v)  # fmt: skip
    delta = tl.sum(do.to(tl.float32) * average.to(tl.float32), 1)
    if FLAGS.kind >= GENERAL:
        delta = tl.load(deltas + rows, mask=exists & (eps > 1.0), other=delta)
    blocks = key_blocks(head, first, FLAGS)
    words = words_of(words, task, size(sizes.num_k), FLAGS)
    tl.store(deltas + rows, delta, mask=exists)
    dq = tl.full((FLAGS.block_m, FLAGS.d), 0.0, tl.float32)
    dalpha = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    dslope = tl.full((FLAGS.block_m,), 0.0, tl.float32)
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        word = tl.load(words + w)
        inner = inner_bits(blocks, w)
        for is_edge in tl.static_range(2):
            rest = word & ~inner if is_edge else word & inner
            for _ in range(0, count_bits(rest)):
                bit, place = lowest_bit(rest)
                rest = rest ^ bit
                first_key = (w * 32 + place) * FLAGS.block_n
                j = first_key + tl.arange(0, FLAGS.block_n)
                k = load_keys(head, first_key, FLAGS)
                v = load_values(head, first_key, FLAGS)
                s, product = score_tile_and_product(q, k, head, first, first_key, FLAGS, is_edge)
                g = dot(do, tl.trans(v), None, FLAGS.precision)
                if FLAGS.has_dropout:
                    g = tl.where(is_kept(key0, key1, j, threshold), g * factors.keep, 0.0)
                if by_alpha is not None:
                    p, sigma, p_alpha = weights_by_alpha(
                        s, c[:, None], eps[:, None], head.unit, FLAGS.kind
                    )
                    g = centered(g, delta[:, None], p)
                    dalpha += tl.sum(p_alpha * g, 1)
                else:
                    p, sigma = weights(s, c[:, None], eps[:, None], head.unit, FLAGS.kind)
                    g = centered(g, delta[:, None], p)
                ds = sigma * g
                if by_slope is not None:
                    dslope -= tl.sum(ds * distance(head, i, j), 1)
                ds = by_dot(ds, product, head, FLAGS)
                k = finite_where_masked(k, FLAGS, is_edge)
                dq = dot(narrow(ds, k.dtype), k, dq, FLAGS.precision)
    if FLAGS.has_sinks:  # its value is zero, so the gradient with respect to its weight is, too
        sink = head.sink
        if by_alpha is not None:
            p, sigma, p_alpha = weights_by_alpha(sink, c, eps, head.unit, FLAGS.kind)
            dalpha += p_alpha * centered(0.0, delta, p)
        else:
            p, sigma = weights(sink, c, eps, head.unit, FLAGS.kind)
        if by_sink is not None:
            tl.store(by_sink + rows, sigma * centered(0.0, delta, p), mask=exists)
    at = first_row(head, task.bh, FLAGS) * head.dim
    store_rows(by_query + at, dq * head.scale, first, head.num_q, head.dim,
               FLAGS.block_m, FLAGS.d)  # fmt: skip
    if by_alpha is not None:
        tl.store(by_alpha + rows, dalpha, mask=exists)
    if by_slope is not None:
        tl.store(by_slope + rows, dslope, mask=exists)


@triton.jit
def load_tile_rows(inputs, head, bh, first, normalizers, deltas, FLAGS: tl.constexpr):
    """Eps, normalizer, delta and row number in dropout of the queries from ``first`` on."""
    i = first + tl.arange(0, FLAGS.block_m)
    exists = i < head.num_q
    rows = first_row(head, bh, FLAGS) + i
    eps = load_eps(inputs.eps, head, bh, i, FLAGS)
    c = tl.load(normalizers + rows, mask=exists, other=NOWHERE)
    delta = tl.load(deltas + rows, mask=exists, other=0.0)
    return eps, c, delta, dropout_rows(head, bh, i, FLAGS)


@triton.jit
def key_value_kernel(
    inputs, sizes, strides, factors, normalizers, transposed, grad, deltas, by_key, by_value,
    FLAGS: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values, over all query heads that read it.

    Args:
        inputs: As for ``query_kernel``, as are ``normalizers``, ``grad`` and ``deltas``.
        transposed: ``(b h, k blocks, q words)``, the mask by blocks of keys.
        by_key: ``(b g, k, d)``.
        by_value: ``(b g, k, e)``.
    """
    num_k = size(sizes.num_k)
    num_blocks = tl.cdiv(num_k, FLAGS.block_n)
    q_words = tl.cdiv(tl.cdiv(size(sizes.num_q), FLAGS.block_m), 32)
    block = tl.program_id(0) % num_blocks
    bg = (tl.program_id(0) // num_blocks).to(tl.int64)
    num_kv_heads = size(sizes.num_kv_heads)
    group = size(sizes.num_heads) // num_kv_heads
    b = bg // num_kv_heads
    first_key = block * FLAGS.block_n
    j = first_key + tl.arange(0, FLAGS.block_n)
    head = open_head(inputs, sizes, strides, factors, b, bg % num_kv_heads * group, FLAGS)
    if FLAGS.is_packed:
        if first_key >= head.end:
            return
    k = load_keys(head, first_key, FLAGS)
    v = load_values(head, first_key, FLAGS)
    # From block of queries ``low`` up to ``high`` all see every key of this block.
    low = tl.where(first_key + FLAGS.block_n > head.end, 1 << 30, 0)
    high = 1 << 30
    if FLAGS.has_right:
        from_query = tl.maximum(first_key + FLAGS.block_n - 1 - head.right, 0)
        low = tl.maximum(low, (from_query + FLAGS.block_m - 1) // FLAGS.block_m)
    if FLAGS.has_left:
        high = tl.maximum(first_key + head.left + 1, 0) // FLAGS.block_m
    dk = tl.full((FLAGS.block_n, FLAGS.d), 0.0, tl.float32)
    dv = tl.full((FLAGS.block_n, FLAGS.e), 0.0, tl.float32)
    for m in range(0, group):
        h = bg % num_kv_heads * group + m
        bh = bg * group + m
        head = open_head(inputs, sizes, strides, factors, b, h, FLAGS)
        for w in range(0, q_words):
            word = tl.load(transposed + (bh * num_blocks + block) * q_words + w)
            inner = low_bits(high - w * 32) & ~low_bits(low - w * 32)
            for is_edge in tl.static_range(2):
                rest = word & ~inner if is_edge else word & inner
                for _ in range(0, count_bits(rest)):
                    bit, place = lowest_bit(rest)
                    rest = rest ^ bit
                    first = (w * 32 + place) * FLAGS.block_m
                    q = load_queries(head, first, FLAGS)
                    do = load_rows(grad + first_row(head, bh, FLAGS) * head.dim_v, head.dim_v,
                                   first, head.num_q, head.dim_v, FLAGS.block_m, FLAGS.e,
                                   FLAGS.has_pad_v)  # fmt: skip
                    eps, c, delta, rows = load_tile_rows(
                        inputs, head, bh, first, normalizers, deltas, FLAGS
                    )
                    s, product = score_tile_and_product(
                        q, k, head, first, first_key, FLAGS, is_edge
                    )
                    p, sigma = weights(s, c[:, None], eps[:, None], head.unit, FLAGS.kind)
                    g = dot(do, tl.trans(v), None, FLAGS.precision)
                    if FLAGS.has_dropout:
                        key0, key1 = row_keys(tl.load(inputs.seed), rows)
                        keep = is_kept(key0, key1, j, decode(sizes.drop_threshold).to(tl.uint32))
                        dropped = tl.where(keep, p * factors.keep, 0.0)
                        g = tl.where(keep, g * factors.keep, 0.0)
                    else:
                        dropped = p
                    dv = dot(tl.trans(narrow(dropped, do.dtype)), do, dv, FLAGS.precision)
                    ds = by_dot(sigma * centered(g, delta[:, None], p), product, head, FLAGS)
                    q = finite_where_masked(q, FLAGS, is_edge)
                    dk = dot(tl.trans(narrow(ds, q.dtype)), q, dk, FLAGS.precision)
    at = bg * num_k
    if FLAGS.is_packed:  # the caller has filled the keys that are not used with zeros
        at = head.key_row
        num_k = head.end
    store_rows(by_key + at * head.dim, dk * head.scale, first_key, num_k, head.dim,
               FLAGS.block_n, FLAGS.d)  # fmt: skip
    store_rows(by_value + at * head.dim_v, dv, first_key, num_k, head.dim_v,
               FLAGS.block_n, FLAGS.e)  # fmt: skip


@triton.jit
def mask_kernel(
    inputs, sizes, strides, factors, normalizers, words, grad, deltas, by_mask, extents,
    FLAGS: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of a float mask, summed over everything that the tile is broadcast to.

    Args:
        inputs: As for ``query_kernel``, as are ``normalizers``, ``words``, ``grad``, ``deltas``.
        by_mask: ``(mask b, mask h, mask q, mask k)`` in float32; sizes of 1 are sums.
        extents: Encoded sizes (b, h, q, k) that the mask is broadcast over, 1 where it is not.
    """
    num_q = size(sizes.num_q)
    num_k = size(sizes.num_k)
    num_heads = size(sizes.num_heads)
    repeat_b = size(extents[0])
    repeat_h = size(extents[1])
    sums_q = size(extents[2]) > 1
    sums_k = size(extents[3]) > 1
    q_blocks = tl.cdiv(num_q, FLAGS.block_m)
    k_blocks = tl.cdiv(num_k, FLAGS.block_n)
    k_words = tl.cdiv(k_blocks, 32)
    # Tiles of the mask along each dimension, and the blocks that each one sums up.
    q_tiles = tl.where(sums_q, 1, q_blocks)
    k_tiles = tl.where(sums_k, 1, k_blocks)
    pid = tl.program_id(0)
    k_tile = pid % k_tiles
    q_tile = pid // k_tiles % q_tiles
    mask_head = (pid // k_tiles // q_tiles).to(tl.int64)
    mask_heads = num_heads // repeat_h
    acc = tl.full((FLAGS.block_m, FLAGS.block_n), 0.0, tl.float32)
    for n in range(0, repeat_b * repeat_h):
        b = mask_head // mask_heads * repeat_b + n // repeat_h
        h = mask_head % mask_heads * repeat_h + n % repeat_h
        bh = b * num_heads + h
        head = open_head(inputs, sizes, strides, factors, b, h, FLAGS)
        for q_block in range(q_tile, tl.where(sums_q, q_blocks, q_tile + 1)):
            first = q_block * FLAGS.block_m
            q = load_queries(head, first, FLAGS)
            do = load_rows(grad + bh * num_q * head.dim_v, head.dim_v, first, num_q, head.dim_v,
                           FLAGS.block_m, FLAGS.e, FLAGS.has_pad_v)  # fmt: skip
            eps, c, delta, rows = load_tile_rows(
                inputs, head, bh, first, normalizers, deltas, FLAGS
            )
            for k_block in range(k_tile, tl.where(sums_k, k_blocks, k_tile + 1)):
                at = (bh * q_blocks + q_block) * k_words + k_block // 32
                if (tl.load(words + at) >> (k_block % 32)) & 1:
                    first_key = k_block * FLAGS.block_n
                    k = load_keys(head, first_key, FLAGS)
                    v = load_values(head, first_key, FLAGS)
                    s = score_tile(q, k, head, first, first_key, FLAGS, True)
                    p, sigma = weights(s, c[:, None], eps[:, None], head.unit, FLAGS.kind)
                    g = dot(do, tl.trans(v), None, FLAGS.precision)
                    if FLAGS.has_dropout:
                        j = first_key + tl.arange(0, FLAGS.block_n)
                        key0, key1 = row_keys(tl.load(inputs.seed), rows)
                        keep = is_kept(key0, key1, j, decode(sizes.drop_threshold).to(tl.uint32))
                        g = tl.where(keep, g * factors.keep, 0.0)
                    acc += sigma * centered(g, delta[:, None], p)
    mask_q = tl.where(sums_q, 1, num_q)
    mask_k = tl.where(sums_k, 1, num_k)
    start = by_mask + mask_head * mask_q * mask_k
    x = tl.arange(0, FLAGS.block_m)
    y = tl.arange(0, FLAGS.block_n)
    if sums_q:
        acc = tl.broadcast_to(tl.sum(acc, 0)[None, :], (FLAGS.block_m, FLAGS.block_n))
    if sums_k:
        acc = tl.broadcast_to(tl.sum(acc, 1)[:, None], (FLAGS.block_m, FLAGS.block_n))
    i = q_tile * FLAGS.block_m + x
    j = k_tile * FLAGS.block_n + y
    at = i.to(tl.int64)[:, None] * mask_k + j[None, :]
    tl.store(start + at, acc, mask=(i < mask_q)[:, None] & (j < mask_k)[None, :])
