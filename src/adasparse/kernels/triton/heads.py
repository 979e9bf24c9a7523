# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""One head of one sequence as a kernel sees it: addresses, sizes and visible blocks of keys."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from adasparse.kernels.triton.arguments import decode, size
from adasparse.kernels.triton.maps import MASKED


class Head(NamedTuple):
    """One head of one sequence, as a kernel sees it.

    Fields that a problem does not have hold some other number: before version 3.7 Triton's
    functions cannot return None.
    """

    query: Any
    key: Any
    value: Any
    mask: Any
    slope: Any
    end: Any
    num_q: Any
    num_k: Any
    dim: Any
    dim_v: Any
    left: Any
    right: Any
    scale: Any
    unit: Any
    query_stride: Any
    key_stride: Any
    value_stride: Any
    mask_stride_q: Any
    mask_stride_k: Any
    softcap: Any
    sink: Any  # its score, in the unit of the others
    row: Any  # number of the first query among the rows of all heads, if packed
    drop_row: Any  # the same as dropout counts them
    key_row: Any  # number of the first key
    pages: Any
    page_size: Any
    key_page: Any  # stride of the pages of keys
    value_page: Any


class KeyBlocks(NamedTuple):
    """Key blocks that a block of queries sees: ``[first, stop)``, whole ones ``[inner, edge)``."""

    first: Any
    inner: Any
    edge: Any
    stop: Any


@triton.jit
def row_stride(code, IS_ALIGNED: tl.constexpr):
    """Stride in 32 bits; the compiler sees the multiple of 16 in the product."""
    stride = size(code)
    if IS_ALIGNED:
        stride *= 16
    return stride


@triton.jit
def head_start(pointer, strides, b, h, IS_ALIGNED: tl.constexpr):
    """Address of the first row of head ``h`` of sequence ``b``."""
    at = b * decode(strides[0]) + h * decode(strides[1])
    if IS_ALIGNED:
        at *= 16
    return pointer + at


@triton.jit
def page_stride(strides, IS_ALIGNED: tl.constexpr):
    """Stride of pages in 64 bits."""
    stride = decode(strides[0])
    if IS_ALIGNED:
        stride *= 16
    return stride


@triton.jit
def head_options(inputs, factors, h, FLAGS: tl.constexpr):
    """ALiBi slope, unit of the scores, ``softcap`` and score of the sink, in that unit."""
    slope = 0.0
    if FLAGS.has_slopes:
        slope = tl.load(inputs.slopes + h)
    unit = 1.0
    if FLAGS.is_raw:
        unit = factors.scale
    softcap = 0.0
    if FLAGS.has_softcap:
        softcap = factors.softcap
    sink = 0.0
    if FLAGS.has_sinks:
        sink = tl.load(inputs.sinks + h)
        sink = tl.where(sink < 0.5 * MASKED, MASKED, sink / unit)
    return slope, unit, softcap, sink


@triton.jit
def open_head(inputs, sizes, strides, factors, b, h, FLAGS: tl.constexpr):
    """Look up head ``h`` of sequence ``b``, both in 64 bits."""
    if FLAGS.is_packed:
        return open_packed_head(inputs, sizes, strides, factors, b, h, FLAGS)
    else:
        return open_plain_head(inputs, sizes, strides, factors, b, h, FLAGS)


@triton.jit
def open_plain_head(inputs, sizes, strides, factors, b, h, FLAGS: tl.constexpr):
    """Look up head ``h`` of sequence ``b`` of a batch that is not packed."""
    kv_head = h // (size(sizes.num_heads) // size(sizes.num_kv_heads))
    num_k = size(sizes.num_k)
    end = num_k
    absent = num_k
    if FLAGS.has_lengths:
        end = tl.minimum(num_k, tl.load(inputs.lengths + b).to(tl.int32))
    mask = absent
    if FLAGS.mask != 0:
        mask = inputs.mask + (b * decode(strides.mask[0]) + h * decode(strides.mask[1]))
    slope, unit, softcap, sink = head_options(inputs, factors, h, FLAGS)
    value = inputs.value
    if value is None:
        value = absent
    else:
        value = head_start(value, strides.value, b, kv_head, FLAGS.is_aligned)
    return Head(
        head_start(inputs.query, strides.query, b, h, FLAGS.is_aligned),
        head_start(inputs.key, strides.key, b, kv_head, FLAGS.is_aligned),
        value,
        mask,
        slope,
        end,
        size(sizes.num_q),
        num_k,
        size(sizes.dim),
        size(sizes.dim_v),
        size(sizes.left),
        size(sizes.right),
        factors.scale,
        unit,
        row_stride(strides.query[2], FLAGS.is_aligned),
        row_stride(strides.key[2], FLAGS.is_aligned),
        row_stride(strides.value[2], FLAGS.is_aligned),
        size(strides.mask[2]),
        size(strides.mask[3]),
        softcap,
        sink,
        absent,
        absent,
        absent,
        absent,
        absent,
        absent,
        absent,
    )


@triton.jit
def open_packed_head(inputs, sizes, strides, factors, b, h, FLAGS: tl.constexpr):
    """Look up head ``h`` of sequence ``b`` of a packed batch, whose last query is at its last key.

    Keys after the length that is used do not exist.
    """
    num_heads = size(sizes.num_heads)
    num_kv_heads = size(sizes.num_kv_heads)
    absent = num_heads
    kv_head = h // (num_heads // num_kv_heads)
    first_q = tl.load(inputs.starts_q + b).to(tl.int64)
    num_q = (tl.load(inputs.starts_q + b + 1).to(tl.int64) - first_q).to(tl.int32)
    query = head_start(inputs.query, strides.query, 0, h, FLAGS.is_aligned)
    query_stride = row_stride(strides.query[2], FLAGS.is_aligned)
    query += first_q * query_stride
    key = head_start(inputs.key, strides.key, 0, kv_head, FLAGS.is_aligned)
    key_stride = row_stride(strides.key[2], FLAGS.is_aligned)
    value = inputs.value
    value_stride = row_stride(strides.value[2], FLAGS.is_aligned)
    if value is None:
        value = absent
    else:
        value = head_start(value, strides.value, 0, kv_head, FLAGS.is_aligned)
    num_k = size(sizes.num_k)
    key_row = absent
    pages = absent
    page_size = absent
    key_page = absent
    value_page = absent
    if FLAGS.has_pages:
        pages = inputs.pages + b * size(sizes.num_pages)
        page_size = size(sizes.page_size)
        key_page = page_stride(strides.key, FLAGS.is_aligned)
        value_page = page_stride(strides.value, FLAGS.is_aligned)
    else:
        first_k = tl.load(inputs.starts_k + b).to(tl.int64)
        # The mask has no room for more keys than the caller spoke of.
        num_k = tl.minimum(
            num_k, (tl.load(inputs.starts_k + b + 1).to(tl.int64) - first_k).to(tl.int32)
        )
        key += first_k * key_stride
        if inputs.value is not None:
            value += first_k * value_stride
        key_row = kv_head * decode(sizes.total_k) + first_k
    if FLAGS.has_lengths:
        num_k = tl.minimum(num_k, tl.load(inputs.lengths + b).to(tl.int32))
    slope, unit, softcap, sink = head_options(inputs, factors, h, FLAGS)
    position = num_k - num_q
    return Head(
        query,
        key,
        value,
        absent,
        slope,
        num_k,
        num_q,
        num_k,
        size(sizes.dim),
        size(sizes.dim_v),
        size(sizes.left) - position,
        size(sizes.right) + position,
        factors.scale,
        unit,
        query_stride,
        key_stride,
        value_stride,
        size(strides.mask[2]),
        size(strides.mask[3]),
        softcap,
        sink,
        h * decode(sizes.total_q) + first_q,
        first_q * num_heads + h * num_q,
        key_row,
        pages,
        page_size,
        key_page,
        value_page,
    )


@triton.jit
def first_row(head, bh, FLAGS: tl.constexpr):
    """Number of the first query of a head among the rows of all heads."""
    if FLAGS.is_packed:
        return head.row
    else:
        return bh * head.num_q


@triton.jit
def dropout_rows(head, bh, i, FLAGS: tl.constexpr):
    """Numbers of queries ``i`` as dropout counts rows: sequence by sequence, then by head."""
    if FLAGS.is_packed:
        return head.drop_row + i
    else:
        return bh * head.num_q + i


@triton.jit
def key_blocks(head, first, FLAGS: tl.constexpr):
    """Key blocks that the queries from ``first`` on see."""
    low = 0
    inner = 0
    stop = head.end
    whole = head.end
    if FLAGS.has_left:
        low = tl.maximum(first - head.left, 0)
        inner = tl.maximum(first + FLAGS.block_m - 1 - head.left, 0)
    if FLAGS.has_right:
        last = tl.minimum(first + FLAGS.block_m, head.num_q)
        stop = tl.maximum(tl.minimum(stop, last + head.right), 0)
        whole = tl.maximum(tl.minimum(whole, first + 1 + head.right), 0)
    stop = (stop + FLAGS.block_n - 1) // FLAGS.block_n
    low = tl.minimum(low // FLAGS.block_n, stop)
    edge = tl.maximum(whole // FLAGS.block_n, low)
    inner = tl.minimum((inner + FLAGS.block_n - 1) // FLAGS.block_n, edge)
    return KeyBlocks(low, inner, edge, stop)
