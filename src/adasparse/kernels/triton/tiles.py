# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""Arguments that all attention kernels share, and tiles of queries, keys and scores."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from adasparse.kernels.triton.interpreter import dot, narrow
from adasparse.kernels.triton.maps import LOG2E, MASKED

#: Added to every integer before it is passed on, see ``encode``.
OFFSET = tl.constexpr(1 << 40)


def encode(n: int) -> int:
    """Return an int64 divisible by 16, whatever ``n`` is.

    Triton compiles a kernel anew for each integer that is 1, a multiple of 16 or beyond 32 bits,
    and ``do_not_specialize`` does not reach into tuples. Encoded, all integers look the same.
    """
    return (n + (1 << 40)) * 16


class Inputs(NamedTuple):
    """Addresses of the tensors of an attention problem, None for what it does not have."""

    query: Any
    key: Any
    value: Any
    eps: Any
    mask: Any
    lengths: Any
    slopes: Any
    seed: Any
    sinks: Any = None
    starts_q: Any = None  # offsets of the queries of each sequence of a packed batch, and the end
    starts_k: Any = None
    pages: Any = None


class Sizes(NamedTuple):
    """Encoded integers: key j is visible to query i if ``i - left <= j <= i + right``.

    In a packed batch ``num_q`` and ``num_k`` are the most of a sequence, the window is that of a
    last query at the last key, and the totals are those of all sequences.
    """

    num_heads: int
    num_kv_heads: int
    num_q: int
    num_k: int
    dim: int
    dim_v: int
    left: int
    right: int
    drop_threshold: int
    total_q: int | None = None
    total_k: int | None = None
    num_pages: int | None = None
    page_size: int | None = None


class Strides(NamedTuple):
    """Encoded strides of (batch, head, row), and (batch, head, query, key) of the mask.

    Those of query, key and value are in units of 16 if ``Flags.is_aligned``.
    """

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    mask: tuple[int, ...]


class Factors(NamedTuple):
    """Factors of the dot products and of the weights that dropout keeps; bound of the scores."""

    scale: float
    keep: float
    softcap: float | None = None


class Flags(NamedTuple):
    """Everything a kernel is compiled for."""

    kind: int  # one of maps.SOFTMAX to GENERAL_CUDA
    is_mixed: bool  # heads with alpha = 1 belong to the softmax kernel, the others do not
    per_query: bool  # eps is (b h q), else (b h)
    has_left: bool
    has_right: bool
    has_slopes: bool
    has_lengths: bool
    mask: int  # 0 none, 1 bool, 2 float
    is_raw: bool  # scores and normalizers are in units of the dot product
    has_dropout: bool
    precision: str | None
    is_aligned: bool  # strides of query, key and value are multiples of 16
    d: int  # head size of query and key, padded to a power of two
    e: int  # that of the values
    has_pad: bool
    has_pad_v: bool
    block_m: int
    block_n: int
    has_softcap: bool = False
    has_sinks: bool = False
    is_packed: bool = False
    has_pages: bool = False


class Head(NamedTuple):
    """One head of one sequence, as a kernel sees it."""

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
def decode(code):
    """Undo ``encode`` in 64 bits."""
    return (code >> 4) - OFFSET


@triton.jit
def size(code):
    """Undo ``encode`` in 32 bits."""
    return decode(code).to(tl.int32)


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
    if FLAGS.has_lengths:
        end = tl.minimum(num_k, tl.load(inputs.lengths + b).to(tl.int32))
    slope = 0.0
    if FLAGS.has_slopes:
        slope = tl.load(inputs.slopes + h)
    mask = inputs.mask
    if FLAGS.mask != 0:
        mask += b * decode(strides.mask[0]) + h * decode(strides.mask[1])
    unit = 1.0
    if FLAGS.is_raw:
        unit = factors.scale
    value = inputs.value
    if value is not None:
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
        factors.softcap,
        load_sink(inputs, h, unit, FLAGS),
        None,
        None,
        None,
        None,
        None,
        None,
        None,
    )


@triton.jit
def open_packed_head(inputs, sizes, strides, factors, b, h, FLAGS: tl.constexpr):
    """Look up head ``h`` of sequence ``b`` of a packed batch, whose last query is at its last key.

    Keys after the length that is used do not exist.
    """
    num_heads = size(sizes.num_heads)
    num_kv_heads = size(sizes.num_kv_heads)
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
    if value is not None:
        value = head_start(value, strides.value, 0, kv_head, FLAGS.is_aligned)
    num_k = size(sizes.num_k)
    key_row = None
    pages = None
    page_size = None
    key_page = None
    value_page = None
    if FLAGS.has_pages:
        pages = inputs.pages + b * size(sizes.num_pages)
        page_size = size(sizes.page_size)
        key_page = page_stride(strides.key, FLAGS.is_aligned)
        value_page = page_stride(strides.value, FLAGS.is_aligned)
    else:
        first_k = tl.load(inputs.starts_k + b).to(tl.int64)
        num_k = (tl.load(inputs.starts_k + b + 1).to(tl.int64) - first_k).to(tl.int32)
        key += first_k * key_stride
        if value is not None:
            value += first_k * value_stride
        key_row = kv_head * decode(sizes.total_k) + first_k
    if FLAGS.has_lengths:
        num_k = tl.minimum(num_k, tl.load(inputs.lengths + b).to(tl.int32))
    slope = 0.0
    if FLAGS.has_slopes:
        slope = tl.load(inputs.slopes + h)
    unit = 1.0
    if FLAGS.is_raw:
        unit = factors.scale
    position = num_k - num_q
    return Head(
        query,
        key,
        value,
        inputs.mask,
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
        factors.softcap,
        load_sink(inputs, h, unit, FLAGS),
        h * decode(sizes.total_q) + first_q,
        first_q * num_heads + h * num_q,
        key_row,
        pages,
        page_size,
        key_page,
        value_page,
    )


@triton.jit
def load_sink(inputs, h, unit, FLAGS: tl.constexpr):
    """Score of the sink of head ``h`` in the unit of the scores; None without sinks."""
    if FLAGS.has_sinks:
        sink = tl.load(inputs.sinks + h)
        return tl.where(sink < 0.5 * MASKED, MASKED, sink / unit)
    else:
        return None


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


@triton.jit
def load_rows(
    start, stride, first, end, dim, BLOCK: tl.constexpr, D: tl.constexpr, HAS_PAD: tl.constexpr
):
    """Rows ``first`` to ``first + BLOCK`` of (n, dim), zeros from ``end`` and from ``dim`` on.

    Only the first row's address takes 64 bits; within the tile 32 are enough.
    """
    i = tl.arange(0, BLOCK)
    x = tl.arange(0, D)
    mask = (i < end - first)[:, None]
    if HAS_PAD:
        mask = mask & (x < dim)[None, :]
    start += tl.cast(first, tl.int64) * stride
    return tl.load(start + i[:, None] * stride + x[None, :], mask=mask, other=0.0)


@triton.jit
def load_paged_rows(
    start, page_stride, stride, head, first, dim,
    BLOCK: tl.constexpr, D: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Rows ``first`` to ``first + BLOCK`` of a sequence in pages, zeros after its end."""
    j = first + tl.arange(0, BLOCK)
    x = tl.arange(0, D)
    exists = j < head.end
    page = tl.load(head.pages + j // head.page_size, mask=exists, other=0).to(tl.int64)
    at = page * page_stride + (j % head.page_size).to(tl.int64) * stride
    mask = exists[:, None]
    if HAS_PAD:
        mask = mask & (x < dim)[None, :]
    return tl.load(start + at[:, None] + x[None, :], mask=mask, other=0.0)


@triton.jit
def store_rows(start, x, first, end, dim, BLOCK: tl.constexpr, D: tl.constexpr):
    """Write rows ``first`` to ``end`` of a contiguous (n, dim).

    Addresses of 64 bits for every element would take more registers than the elements.
    """
    i = tl.arange(0, BLOCK)
    y = tl.arange(0, D)
    mask = (i < end - first)[:, None] & (y < dim)[None, :]
    start += tl.cast(first, tl.int64) * dim
    tl.store(start + i[:, None] * dim + y[None, :], narrow(x, start.dtype.element_ty), mask=mask)


@triton.jit
def load_queries(head, first, FLAGS: tl.constexpr):
    """Tile of queries from ``first`` on."""
    return load_rows(
        head.query, head.query_stride, first, head.num_q, head.dim,
        FLAGS.block_m, FLAGS.d, FLAGS.has_pad,
    )  # fmt: skip


@triton.jit
def load_keys(head, first, FLAGS: tl.constexpr):
    """Tile of keys from ``first`` on; zeros after the end of the sequence."""
    if FLAGS.has_pages:
        return load_paged_rows(
            head.key, head.key_page, head.key_stride, head, first, head.dim,
            FLAGS.block_n, FLAGS.d, FLAGS.has_pad,
        )  # fmt: skip
    else:
        return load_rows(
            head.key, head.key_stride, first, head.end, head.dim,
            FLAGS.block_n, FLAGS.d, FLAGS.has_pad,
        )  # fmt: skip


@triton.jit
def load_values(head, first, FLAGS: tl.constexpr):
    """Tile of values from ``first`` on; zeros after the end of the sequence."""
    if FLAGS.has_pages:
        return load_paged_rows(
            head.value, head.value_page, head.value_stride, head, first, head.dim_v,
            FLAGS.block_n, FLAGS.e, FLAGS.has_pad_v,
        )  # fmt: skip
    else:
        return load_rows(
            head.value, head.value_stride, first, head.end, head.dim_v,
            FLAGS.block_n, FLAGS.e, FLAGS.has_pad_v,
        )  # fmt: skip


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
        ds = ds * (1.0 - x * x)
    return ds


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
