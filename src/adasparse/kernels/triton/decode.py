# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: D417, N803
"""Decoding: few queries against many keys, in launches that split the keys.

The scores of a step fit in memory (4 bytes a key, query and query head; a key and its value of size
128 take 512 bytes in half precision), so the normalizer is solved exactly between the two sweeps
over the cache:

1. ``scores_kernel``: scores of a block of keys, for all queries that share them;
2. ``rows.entmax_kernel``: weights of each row in place of its scores, whose reads mostly hit the
   cache;
3. ``values_kernel``: weighted values of a slice of keys, without the blocks that have no weight;
   and once more for the slices in which a value was NaN or infinite.

Keys are read once, values where they have weight. The weights are those of the whole row, so the
slices only need adding up, in a fixed order.
"""

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from adasparse.kernels.problem import AttentionProblem
from adasparse.kernels.triton import launch
from adasparse.kernels.triton.arguments import decode, encode, size
from adasparse.kernels.triton.heads import open_head
from adasparse.kernels.triton.interpreter import dot, narrow
from adasparse.kernels.triton.launch import padded, prepare, shape_of
from adasparse.kernels.triton.maps import MASKED
from adasparse.kernels.triton.repair import add_marks, is_told, split, with_marks
from adasparse.kernels.triton.rows import entmax_kernel, row_arguments, run_rows
from adasparse.kernels.triton.scores import finish_scores, scaled
from adasparse.kernels.triton.tiles import load_keys, load_values

#: Most queries of a step; most rows of a tile, queries times query heads per key head, and most
#: bytes of it: it stays in memory that other tiles need, too.
MAX_QUERIES = 16
MAX_ROWS = 128
MAX_BYTES = 32768
#: Fewest keys for which splitting them pays, not measured; most keys, so that offsets in a tile of
#: scores fit in 32 bits.
MIN_KEYS = 512
MAX_KEYS = 2**31 // MAX_ROWS - 128


@triton.jit
def columns_of(num_k, FLAGS: tl.constexpr):
    """Length of a row of scores: all keys, and the sink."""
    if FLAGS.has_sinks:
        return num_k + 1
    else:
        return num_k


@triton.jit
def scores_kernel(
    inputs, sizes, strides, factors, scores, FLAGS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Scores ``(b g, rows, k)`` in float32 of one block of keys; sinks come after the keys.

    Args:
        inputs: As for ``forward.threshold_kernel``.
        scores: Rows are the queries of all heads that share the keys, heads first.
    """
    num_k = size(sizes.num_k)
    num_q = size(sizes.num_q)
    num_kv_heads = size(sizes.num_kv_heads)
    group = size(sizes.num_heads) // num_kv_heads
    num_blocks = tl.cdiv(num_k, FLAGS.block_n)
    first_key = tl.program_id(0) % num_blocks * FLAGS.block_n
    bg = (tl.program_id(0) // num_blocks).to(tl.int64)
    first_head = bg % num_kv_heads * group
    head = open_head(inputs, sizes, strides, factors, bg // num_kv_heads, first_head, FLAGS)
    row = tl.arange(0, ROWS)
    member = row // num_q
    exists = row < group * num_q
    i = tl.where(exists, row % num_q, num_q)
    j = first_key + tl.arange(0, FLAGS.block_n)
    x = tl.arange(0, FLAGS.d)
    unit = 16 if FLAGS.is_aligned else 1
    at = member.to(tl.int64) * (decode(strides.query[1]) * unit)
    at += i * head.query_stride
    mask = (exists & (i < head.num_q))[:, None]
    if FLAGS.has_pad:
        mask = mask & (x < head.dim)[None, :]
    q = tl.load(head.query + at[:, None] + x[None, :], mask=mask, other=0.0)
    k = load_keys(head, first_key, FLAGS)
    slope = 0.0
    if FLAGS.has_slopes:
        slopes = inputs.slopes + first_head + member
        slope = tl.load(slopes, mask=exists, other=0.0)[:, None]
    offsets = member.to(tl.int64) * decode(strides.mask[1]) + i * decode(strides.mask[2])
    s = scaled(dot(q, tl.trans(k), None, FLAGS.precision), head, FLAGS)
    s = finish_scores(s, head, slope, i, j, 0, first_key, offsets, FLAGS, True)
    s = tl.where(s <= 0.5 * MASKED, MASKED, s)
    if FLAGS.is_raw:
        s = tl.where(s == MASKED, s, s * head.unit)
    columns = columns_of(num_k, FLAGS)
    scores += bg * group * num_q * columns
    at = (row * columns)[:, None] + j[None, :]
    tl.store(scores + at, s, mask=exists[:, None] & (j < num_k)[None, :])
    if FLAGS.has_sinks:
        sink = tl.load(inputs.sinks + first_head + member, mask=exists, other=0.0)
        sink = tl.where(sink < 0.5 * MASKED, MASKED, sink)
        tl.store(scores + row * columns + num_k, sink, mask=exists & (first_key == 0))


@triton.jit
def part_start(part, num_slices, bg, rows, head):
    """Place of the outputs of a slice of the keys."""
    num_groups = tl.num_programs(0) // num_slices
    return (part.to(tl.int64) * num_groups + bg) * rows * head.dim_v


@triton.jit
def values_kernel(
    inputs, sizes, strides, factors, weights, slice_blocks, parts,
    FLAGS: tl.constexpr, ROWS: tl.constexpr, IS_REPAIR: tl.constexpr,
):  # fmt: skip
    """Weighted values of a slice of ``slice_blocks`` blocks of keys: ``(slices, b g, rows, e)``.

    If IS_REPAIR, only those of slices in which a value is not finite, see ``repair``.
    """
    num_k = size(sizes.num_k)
    num_kv_heads = size(sizes.num_kv_heads)
    group = size(sizes.num_heads) // num_kv_heads
    rows = group * size(sizes.num_q)
    num_slices = tl.cdiv(tl.cdiv(num_k, FLAGS.block_n), size(slice_blocks))
    part = tl.program_id(0) % num_slices
    bg = (tl.program_id(0) // num_slices).to(tl.int64)
    head = open_head(inputs, sizes, strides, factors, bg // num_kv_heads,
                     bg % num_kv_heads * group, FLAGS)  # fmt: skip
    row = tl.arange(0, ROWS)
    x = tl.arange(0, FLAGS.e)
    if IS_REPAIR:
        if not is_told(parts + part_start(part, num_slices, bg, rows, head), head.dim_v, FLAGS):
            return
        found = tl.full((ROWS, FLAGS.e), 0.0, tl.float32)
    acc = tl.full((ROWS, FLAGS.e), 0.0, tl.float32)
    columns = columns_of(num_k, FLAGS)
    weights += bg * rows * columns
    for n in range(0, size(slice_blocks)):
        first_key = (part * size(slice_blocks) + n) * FLAGS.block_n
        j = first_key + tl.arange(0, FLAGS.block_n)
        at = (row * columns)[:, None] + j[None, :]
        p = tl.load(weights + at, mask=(row < rows)[:, None] & (j < num_k)[None, :], other=0.0)
        if tl.sum(tl.sum((p != 0.0).to(tl.int32), 1), 0) > 0:  # NaN counts
            v = load_values(head, first_key, FLAGS)
            if IS_REPAIR:
                v, marks = split(v)
                found = add_marks(found, p, marks, FLAGS.precision)
            acc = dot(narrow(p, v.dtype), v, acc, FLAGS.precision)
    if IS_REPAIR:
        acc = with_marks(acc, found)
    parts += part_start(part, num_slices, bg, rows, head)
    at = (row * head.dim_v)[:, None] + x[None, :]
    tl.store(parts + at, acc, mask=(row < rows)[:, None] & (x < head.dim_v)[None, :])


def is_decoding(problem: AttentionProblem) -> bool:
    """Whether a forward without backward is better split over the keys."""
    _, h, g, q, k = shape_of(problem)
    rows = h // g * q
    is_short = q <= MAX_QUERIES and rows <= MAX_ROWS and MIN_KEYS <= k <= MAX_KEYS
    is_small = padded(rows) * _row_bytes(problem) <= MAX_BYTES
    # The alphas of the queries of a packed batch do not lie as its rows do here.
    has_rows = problem.cu_seq_q is not None and problem.alpha.shape[2] != 1
    return is_short and is_small and problem.seed is None and not has_rows


def _row_bytes(problem: AttentionProblem) -> int:
    """Bytes of a padded row of queries or values, whichever has more."""
    query, value = problem.query, problem.value
    return max(padded(query.shape[3]), padded(value.shape[3])) * query.element_size()


def _block_of_keys(rows: int, row_bytes: int, dtype: torch.dtype) -> int:
    """Keys of a tile: fewer where the other tiles are large, so that no register spills."""
    if dtype == torch.float32 and (row_bytes > 512 or rows * row_bytes > MAX_BYTES // 2):
        return 16
    return 64 if row_bytes <= 256 and rows <= 64 else 32


def _num_slices(device: torch.device, groups: int, blocks: int) -> int:
    """Number of slices of the keys that keeps all processors of the device busy."""
    processors = 4
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(blocks, -(-2 * processors // groups)))


def attention_decode(problem: AttentionProblem) -> Tensor:
    """Output ``(b, h, q, e)`` for problems that ``is_decoding`` is true of, without gradients."""
    call, alpha = prepare(problem), problem.alpha
    b, h, g, q, k = call.shape
    query, value = call.inputs.query, call.inputs.value
    device, e = query.device, value.shape[-1]
    rows = h // g * q
    flags = call.flags._replace(
        kind=3, is_mixed=False, per_query=False, has_dropout=False,
        block_m=16, block_n=_block_of_keys(padded(rows), _row_bytes(problem), query.dtype),
    )  # fmt: skip
    call = call._replace(flags=flags)
    blocks = triton.cdiv(k, flags.block_n)
    constants: dict[str, Any] = {
        "FLAGS": flags,
        "ROWS": padded(rows),
        # A tile of products with values is in the registers of a program.
        "warps": 4 if padded(rows) * flags.e <= 4096 and query.dtype != torch.float32 else 8,
        "stages": 2,
    }
    scores = torch.empty(b * h * q, k + flags.has_sinks, dtype=torch.float32, device=device)
    launch.run(scores_kernel, blocks * b * g, *call.arguments, scores, **constants)
    if alpha.numel() != 1:
        alpha = alpha.expand(b, h, q, 1).reshape(-1)
    arguments = row_arguments(alpha, device, is_general=False)
    # In place: a program reads a tile of its rows for the last time before it writes it.
    weights = scores
    run_rows(entmax_kernel, scores.shape, {"scores": scores, "out": weights, **arguments})
    slice_blocks = triton.cdiv(blocks, _num_slices(device, b * g, blocks))
    slices = triton.cdiv(blocks, slice_blocks)
    parts = torch.empty(slices, b, h, q, e, dtype=torch.float32, device=device)
    run = functools.partial(launch.run, values_kernel, slices * b * g, *call.arguments, weights)
    run(encode(slice_blocks), parts, IS_REPAIR=False, **constants)
    constants |= {"FLAGS": flags._replace(block_n=16), "warps": 8, "stages": 1}
    run(encode(slice_blocks * flags.block_n // 16), parts, IS_REPAIR=True, **constants)
    output = parts.sum(0).to(query.dtype)
    return output if problem.cu_seq_q is None else _packed_rows(output, problem)


def _packed_rows(output: Tensor, problem: AttentionProblem) -> Tensor:
    """``(1, h, total_q, e)`` from ``(sequences, h, max_q, e)``, without waiting for the device."""
    starts = problem.cu_seq_q
    assert starts is not None
    i = torch.arange(problem.query.shape[2], dtype=starts.dtype, device=starts.device)
    sequence = torch.searchsorted(starts[1:].contiguous(), i, right=True)
    sequence = sequence.clamp(max=output.shape[0] - 1)
    place = (i - starts[sequence]).clamp(max=output.shape[2] - 1)
    rows = output[sequence, :, place.long()]
    # Tokens after the last sequence belong to none.
    rows = rows.masked_fill((i >= starts[-1])[:, None, None], 0)
    return rows.transpose(0, 1).unsqueeze(0).contiguous()
