# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""Tiles of queries, keys and values: loads and stores."""

import triton
import triton.language as tl

from adasparse.kernels.triton.interpreter import narrow


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
