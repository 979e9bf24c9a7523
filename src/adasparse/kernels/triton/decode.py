# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: D417, N803
"""Decoding: few queries against many keys, in three launches that split the keys.

The scores of a step fit in memory (one float a key and query head, under 2% of the keys), so the
normalizer is solved exactly between the two sweeps over the cache:

1. ``scores_kernel``: scores of a block of keys, for all queries that share them;
2. ``rows.entmax_kernel``: weights of each row, whose reads mostly hit the cache;
3. ``values_kernel``: weighted values of a slice of keys, without the blocks that have no weight.

Keys are read once, values where they have weight. The weights are those of the whole row, so the
slices only need adding up, in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from adasparse.kernels.problem import AttentionProblem
from adasparse.kernels.triton import launch
from adasparse.kernels.triton.interpreter import dot, narrow
from adasparse.kernels.triton.launch import Launch, padded, prepare
from adasparse.kernels.triton.maps import MASKED
from adasparse.kernels.triton.rows import entmax_kernel, row_arguments, run_rows
from adasparse.kernels.triton.tiles import (
    decode,
    encode,
    finish_scores,
    open_head,
    row_stride,
    size,
)

#: Most queries of a step, and most rows of a tile: queries times query heads per key head.
MAX_QUERIES = 16
MAX_ROWS = 128
#: Fewest keys for which splitting them pays; not measured.
MIN_KEYS = 512


@triton.jit
def row_starts(
    pointer, strides, pages, b, kv_head, j, end, num_pages, page_size, IS_ALIGNED: tl.constexpr
):
    """Addresses of rows ``j`` of keys or values, plain or in pages."""
    exists = j < end
    if pages is not None:
        page = tl.load(pages + b * num_pages + j // page_size, mask=exists, other=0).to(tl.int64)
        at = page * decode(strides[0])
        j = j % page_size
    else:
        at = b * decode(strides[0]) + j.to(tl.int64) * 0
    at += kv_head * decode(strides[1]) + j.to(tl.int64) * decode(strides[2])
    if IS_ALIGNED:
        at *= 16
    return pointer + at


@triton.jit
def scores_kernel(
    inputs, sizes, strides, factors, pages, num_pages, page_size, scores,
    FLAGS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Scores ``(b g, rows, k)`` in float32 of one block of keys.

    Args:
        inputs: As for ``forward.threshold_kernel``.
        pages: ``(b, num_pages)`` in int32: page of keys and values at each place; or None.
        num_pages: Encoded number of pages of a sequence.
        page_size: Encoded number of keys of a page.
        scores: Rows are the queries of all heads that share the keys, heads first.
    """
    num_k = size(sizes.num_k)
    num_q = size(sizes.num_q)
    num_kv_heads = size(sizes.num_kv_heads)
    group = size(sizes.num_heads) // num_kv_heads
    num_blocks = tl.cdiv(num_k, FLAGS.block_n)
    first_key = tl.program_id(0) % num_blocks * FLAGS.block_n
    bg = (tl.program_id(0) // num_blocks).to(tl.int64)
    b = bg // num_kv_heads
    kv_head = bg % num_kv_heads
    head = open_head(inputs, sizes, strides, factors, b, kv_head * group, FLAGS)
    row = tl.arange(0, ROWS)
    member = row // num_q
    exists = row < group * num_q
    i = tl.where(exists, row % num_q, num_q)
    j = first_key + tl.arange(0, FLAGS.block_n)
    x = tl.arange(0, FLAGS.d)
    unit = 16 if FLAGS.is_aligned else 1
    at = member.to(tl.int64) * (decode(strides.query[1]) * unit)
    at += i * row_stride(strides.query[2], FLAGS.is_aligned)
    mask = exists[:, None]
    if FLAGS.has_pad:
        mask = mask & (x < head.dim)[None, :]
    q = tl.load(head.query + at[:, None] + x[None, :], mask=mask, other=0.0)
    start = row_starts(inputs.key, strides.key, pages, b, kv_head, j, head.end, size(num_pages),
                       size(page_size), FLAGS.is_aligned)  # fmt: skip
    mask = (j < head.end)[:, None]
    if FLAGS.has_pad:
        mask = mask & (x < head.dim)[None, :]
    k = tl.load(start[:, None] + x[None, :], mask=mask, other=0.0)
    slope = 0.0
    if FLAGS.has_slopes:
        slopes = inputs.slopes + kv_head * group + member
        slope = tl.load(slopes, mask=exists, other=0.0)[:, None]
    offsets = member.to(tl.int64) * decode(strides.mask[1]) + i * decode(strides.mask[2])
    s = dot(q, tl.trans(k), None, FLAGS.precision)
    s = finish_scores(s, head, slope, i, j, 0, first_key, offsets, FLAGS, True)
    s = tl.where(s <= 0.5 * MASKED, MASKED, s)
    if FLAGS.is_raw:
        s = tl.where(s == MASKED, s, s * head.unit)
    at = (bg * group * num_q + row)[:, None] * num_k + j[None, :]
    tl.store(scores + at, s, mask=exists[:, None] & (j < num_k)[None, :])


@triton.jit
def values_kernel(
    inputs, sizes, strides, factors, pages, num_pages, page_size, weights, slice_blocks, parts,
    FLAGS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Weighted values of a slice of ``slice_blocks`` blocks of keys: ``(slices, b g, rows, e)``."""
    num_k = size(sizes.num_k)
    num_kv_heads = size(sizes.num_kv_heads)
    rows = size(sizes.num_heads) // num_kv_heads * size(sizes.num_q)
    num_slices = tl.cdiv(tl.cdiv(num_k, FLAGS.block_n), size(slice_blocks))
    part = tl.program_id(0) % num_slices
    bg = (tl.program_id(0) // num_slices).to(tl.int64)
    b = bg // num_kv_heads
    head = open_head(inputs, sizes, strides, factors, b, bg % num_kv_heads, FLAGS)
    row = tl.arange(0, ROWS)
    x = tl.arange(0, FLAGS.e)
    acc = tl.full((ROWS, FLAGS.e), 0.0, tl.float32)
    for n in range(0, size(slice_blocks)):
        j = (part * size(slice_blocks) + n) * FLAGS.block_n + tl.arange(0, FLAGS.block_n)
        at = (bg * rows + row)[:, None] * num_k + j[None, :]
        p = tl.load(weights + at, mask=(row < rows)[:, None] & (j < num_k)[None, :], other=0.0)
        if tl.sum(tl.sum((p != 0.0).to(tl.int32), 1), 0) > 0:  # NaN counts
            start = row_starts(inputs.value, strides.value, pages, b, bg % num_kv_heads, j,
                               head.end, size(num_pages), size(page_size),
                               FLAGS.is_aligned)  # fmt: skip
            mask = (j < head.end)[:, None]
            if FLAGS.has_pad_v:
                mask = mask & (x < head.dim_v)[None, :]
            v = tl.load(start[:, None] + x[None, :], mask=mask, other=0.0)
            acc = dot(narrow(p, v.dtype), v, acc, FLAGS.precision)
    num_groups = tl.num_programs(0) // num_slices
    at = ((part.to(tl.int64) * num_groups + bg) * rows + row)[:, None] * head.dim_v + x[None, :]
    tl.store(parts + at, acc, mask=(row < rows)[:, None] & (x < head.dim_v)[None, :])


def is_decoding(problem: AttentionProblem) -> bool:
    """Whether a forward without backward is better split over the keys."""
    (_, h, q, _), (_, g, k, _) = problem.query.shape, problem.key.shape
    return q <= MAX_QUERIES and h // g * q <= MAX_ROWS and k >= MIN_KEYS and problem.seed is None


def _num_slices(device: torch.device, groups: int, blocks: int) -> int:
    """Number of slices of the keys that keeps all processors of the device busy."""
    processors = 4
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(blocks, -(-2 * processors // groups)))


def _attend(call: Launch, alpha: Tensor, pages: Tensor | None, page_size: int) -> Tensor:
    b, h, g, q, k = call.shape
    query, value = call.inputs.query, call.inputs.value
    device, e = query.device, value.shape[-1]
    rows = h // g * q
    wide = max(call.flags.d, call.flags.e) * query.element_size()
    flags = call.flags._replace(
        kind=3, is_mixed=False, per_query=False, has_dropout=False,
        block_m=16, block_n=64 if wide <= 256 else 32,
    )  # fmt: skip
    call = call._replace(flags=flags)
    blocks = triton.cdiv(k, flags.block_n)
    constants: dict[str, Any] = {
        "FLAGS": flags,
        "ROWS": max(16, padded(rows)),
        "warps": 4,
        "stages": 2,
    }
    paging = (pages, encode(0 if pages is None else pages.shape[1]), encode(page_size))
    scores = torch.empty(b * h * q, k, dtype=torch.float32, device=device)
    launch.run(scores_kernel, blocks * b * g, *call.arguments, *paging, scores, **constants)
    weights = torch.empty_like(scores)
    if alpha.numel() != 1:
        alpha = alpha.expand(b, h, q, 1).reshape(-1)
    arguments = row_arguments(alpha, device, is_general=False)
    run_rows(entmax_kernel, scores.shape, {"scores": scores, "out": weights, **arguments})
    slice_blocks = triton.cdiv(blocks, _num_slices(device, b * g, blocks))
    slices = triton.cdiv(blocks, slice_blocks)
    parts = torch.empty(slices, b, h, q, e, dtype=torch.float32, device=device)
    values: tuple[Any, ...] = (weights, encode(slice_blocks), parts)
    launch.run(values_kernel, slices * b * g, *call.arguments, *paging, *values, **constants)
    return parts.sum(0).to(query.dtype)


def attention_decode(problem: AttentionProblem) -> Tensor:
    """Output ``(b, h, q, e)`` for problems that ``is_decoding`` is true of, without gradients."""
    return _attend(prepare(problem), problem.alpha, None, 1)


def attention_paged(problem: AttentionProblem, pages: Tensor) -> Tensor:
    """Output ``(b, h, q, e)`` of few queries against keys and values in pages.

    Args:
        problem: Its key and value are ``(num_pages, page_size, g, d)``, shared by all sequences;
            it has ``key_lengths``, no mask and no dropout.
        pages: ``(b, n)`` in int32: the page that holds each ``page_size`` keys of a sequence, as
            the block table of ``torch.nn.attention.varlen`` has it.
    """
    page_size = problem.key.shape[1]
    viewed = AttentionProblem(
        **{
            **vars(problem),
            "key": problem.key.transpose(1, 2),
            "value": problem.value.transpose(1, 2),
        }
    )
    call = prepare(viewed)
    b, h, g, q, _ = call.shape
    k = pages.shape[1] * page_size
    call = call._replace(shape=(b, h, g, q, k), sizes=call.sizes._replace(num_k=encode(k)))
    return _attend(call, problem.alpha, pages.to(torch.int32).contiguous(), page_size)
