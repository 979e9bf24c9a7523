# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: D417, N803
"""The nonzero weights of attention as sparse rows, without the matrix of scores."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from adasparse.kernels.problem import AttentionProblem, SparseRows
from adasparse.kernels.triton.arguments import size
from adasparse.kernels.triton.attention import solve
from adasparse.kernels.triton.forward import load_eps, open_task, words_of
from adasparse.kernels.triton.heads import first_row, key_blocks, open_head
from adasparse.kernels.triton.interpreter import narrow
from adasparse.kernels.triton.launch import prepare
from adasparse.kernels.triton.maps import NOWHERE, weights
from adasparse.kernels.triton.scores import score_tile
from adasparse.kernels.triton.tiles import load_keys, load_queries
from adasparse.kernels.triton.words import count_bits, lowest_bit

#: Newton's method runs to the end: weights have no first-order correction.
_STEP_BOUND = 1e-4


@triton.jit
def support_kernel(
    inputs, sizes, strides, factors, normalizers, words, counts, offsets, columns, values,
    FLAGS: tl.constexpr,
):  # fmt: skip
    """Count the support of each row or, if there are ``offsets``, write it.

    Args:
        inputs: As for ``forward.threshold_kernel``, as are ``normalizers`` and ``words``.
        counts: ``(b h q,)`` in int64, or None.
        offsets: ``(b h q,)`` in int64: place of the first entry of each row, or None.
        columns: Key of each entry in int64, ascending within a row.
        values: Weight of each entry.
    """
    task = open_task(sizes, FLAGS)
    head = open_head(inputs, sizes, strides, factors, task.b, task.h, FLAGS)
    i = task.first + tl.arange(0, FLAGS.block_m)
    exists = i < head.num_q
    rows = first_row(head, task.bh, FLAGS) + i
    eps = load_eps(inputs.eps, head, task.bh, i, FLAGS)
    c = tl.load(normalizers + rows, mask=exists, other=NOWHERE)
    q = load_queries(head, task.first, FLAGS)
    blocks = key_blocks(head, task.first, FLAGS)
    words = words_of(words, task, size(sizes.num_k), FLAGS)
    place = tl.full((FLAGS.block_m,), 0, tl.int64)
    if offsets is not None:
        place += tl.load(offsets + rows, mask=exists, other=0)
    for w in range(blocks.first // 32, (blocks.stop + 31) // 32):
        rest = tl.load(words + w)
        for _ in range(0, count_bits(rest)):
            bit, t = lowest_bit(rest)
            rest = rest ^ bit
            first_key = (w * 32 + t) * FLAGS.block_n
            k = load_keys(head, first_key, FLAGS)
            s = score_tile(q, k, head, task.first, first_key, FLAGS, True)
            p, _ = weights(s, c[:, None], eps[:, None], head.unit, FLAGS.kind)
            j = first_key + tl.arange(0, FLAGS.block_n)
            inside = (p != 0.0) & exists[:, None] & (j < head.num_k)[None, :]
            if offsets is not None:
                at = place[:, None] + tl.cumsum(inside.to(tl.int32), 1) - 1
                column = tl.broadcast_to(j[None, :], (FLAGS.block_m, FLAGS.block_n))
                tl.store(columns + at, column.to(tl.int64), mask=inside)
                tl.store(values + at, narrow(p, values.dtype.element_ty), mask=inside)
            place += tl.sum(inside.to(tl.int32), 1)
    if counts is not None:
        tl.store(counts + rows, place, mask=exists)


def attention_support(problem: AttentionProblem) -> SparseRows:
    """Nonzero weights of all rows ``(b h q, k)``, before dropout.

    Waits for the device once, to know how much memory the entries take.
    """
    call = prepare(problem)
    b, h, _, q, _ = call.shape
    flags = call.flags._replace(is_mixed=False, has_dropout=False, e=16, has_pad_v=False)
    call = call._replace(flags=flags, inputs=call.inputs._replace(value=None, seed=None))
    device = problem.query.device
    normalizers = torch.empty(b, h, q, dtype=torch.float32, device=device)
    words = torch.zeros(b * h, call.blocks[0], call.words[1], dtype=torch.int32, device=device)
    solve(call, normalizers, words, _STEP_BOUND, None)

    def visit(*arguments: Tensor | None) -> None:
        programs = call.blocks[0] * b * h
        call.run(support_kernel, "threshold", programs, normalizers, words, *arguments, FLAGS=flags)

    crow = torch.zeros(b * h * q + 1, dtype=torch.int64, device=device)
    counts = torch.empty(b * h * q, dtype=torch.int64, device=device)
    visit(counts, None, None, None)
    torch.cumsum(counts, 0, out=crow[1:])
    size = int(crow[-1])
    col = torch.empty(size, dtype=torch.int64, device=device)
    value = torch.empty(size, dtype=problem.query.dtype, device=device)
    visit(None, crow, col, value)
    return SparseRows(crow=crow, col=col, value=value)
