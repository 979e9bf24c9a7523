"""Attention by the compiled kernels, packed batches included.

Every sequence of a packed batch is a call of its own in the extension, which divides them among
threads; what they save lies one sequence after another.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.kernels.cpu import attention, native
from adasparse.kernels.cpu.attention import SavedSupport, SavedWeights
from adasparse.kernels.packed import Offsets, is_packed, offsets_of
from adasparse.kernels.problem import AttentionGradients, AttentionProblem, with_tensors


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedPacked:
    """The support of each row, or the weights of sequences with few keys.

    Rows are numbered sequence by sequence, within each head by head.

    Args:
        weights: Weights ``(h, q, k)`` of each sequence that saves them whole.
        state: State of the solver ``(h total_q, 3)`` in float64.
        offsets: ``(h total_q + n,)``: first entry of each row and the end, of each sequence,
            counted from its first.
        index: Keys of the entries, in int32; dense heads have none.
        weight: Weights of the entries.
        is_dense: ``(n, h)``: whether a head is recomputed in the backward pass.
        sink_weights: Weights of the sinks ``(h total_q,)``, or None without.
    """

    weights: Tensor
    state: Tensor
    offsets: Tensor
    index: Tensor
    weight: Tensor
    is_dense: Tensor
    sink_weights: Tensor | None


def attention_forward(
    problem: AttentionProblem, *, keep: bool, support_bytes: int | None = None
) -> tuple[Tensor, SavedWeights | SavedSupport | SavedPacked | None]:
    """See ``AttentionKernels.attention_forward``.

    Args:
        problem: The call.
        keep: Whether to save what backward needs.
        support_bytes: Memory for the support; heads beyond it are recomputed in the backward pass.
            None for ``SUPPORT_BYTES`` of the extension.
    """
    if not is_packed(problem):
        return attention.attention_forward(problem, keep=keep, support_bytes=support_bytes)
    return _packed_forward(problem, keep, support_bytes)


def _call_of(problem: AttentionProblem, offsets: Offsets) -> "native.extension.PackedAttention":
    table = problem.block_table
    # Lengths and positions are those of each sequence.
    arguments = attention.input_of(with_tensors(problem, {"key_lengths": None, "position": 0}))
    return native.extension.PackedAttention(
        arguments,
        query=offsets.query,
        key=offsets.key,
        used=offsets.used,
        table=native.address(table, torch.int32),
        pages=0 if table is None else table.shape[1],
    )


@native.raises_memory_error
def _packed_forward(
    problem: AttentionProblem, keep: bool, support_bytes: int | None
) -> tuple[Tensor, SavedPacked | None]:
    offsets = offsets_of(problem)
    call = _call_of(problem, offsets)
    _, heads, total, _ = problem.query.shape
    out = attention.empty_rows((1, heads, total, problem.value.shape[-1]), problem.query)
    if not keep:
        call.forward(out=out.data_ptr(), out_strides=out.stride(), is_saved=False)
        return out, None
    rows, n = heads * total, len(offsets.used)
    state = torch.empty(rows, 3, dtype=torch.float64)
    dtype = attention.compute_dtype(out.dtype)
    weights = torch.empty(call.weights_size(), dtype=dtype)
    sinks = None if problem.sinks is None else torch.empty(rows, dtype=dtype)
    call.forward(
        out=out.data_ptr(),
        out_strides=out.stride(),
        is_saved=True,
        weights=weights.data_ptr(),
        state=state.data_ptr(),
        sink_weights=native.address(sinks),
        support_bytes=native.extension.SUPPORT_BYTES if support_bytes is None else support_bytes,
    )
    starts = torch.empty(rows + n, dtype=torch.int64)
    is_dense = torch.empty(n, heads, dtype=torch.uint8)
    places = {"offsets": starts.data_ptr(), "is_dense": is_dense.data_ptr()}
    size = call.arrange(**places)
    index, weight = torch.empty(size, dtype=torch.int32), torch.empty(size, dtype=dtype)
    call.move(index=index.data_ptr(), weight=weight.data_ptr(), **places)
    saved = SavedPacked(
        weights=weights,
        state=state,
        offsets=starts,
        index=index,
        weight=weight,
        is_dense=is_dense,
        sink_weights=sinks,
    )
    return out, saved


def attention_backward(
    problem: AttentionProblem,
    saved: SavedWeights | SavedSupport | SavedPacked,
    grad: Tensor,
    needs: frozenset[str],
) -> AttentionGradients:
    """See ``AttentionKernels.attention_backward``; query, key and value always get theirs."""
    if not isinstance(saved, SavedPacked):
        return attention.attention_backward(problem, saved, grad, needs)
    return _packed_backward(problem, saved, grad, needs)


@native.raises_memory_error
def _packed_backward(
    problem: AttentionProblem, saved: SavedPacked, grad: Tensor, needs: frozenset[str]
) -> AttentionGradients:
    offsets = offsets_of(problem)
    query, key, value = problem.query, problem.key, problem.value
    _, heads, total, _ = query.shape
    by_query, by_key, by_value = (attention.empty_rows(x.shape, query) for x in (query, key, value))
    used = sum(k for s, k in enumerate(offsets.used) if offsets.query[s + 1] > offsets.query[s])
    if used < key.shape[2]:  # no query sees some keys
        by_key.zero_()
        by_value.zero_()
    by_row = {
        name: torch.empty(heads * total, dtype=torch.float64) if name in needs else None
        for name in ("alpha", "slopes", "sinks")
    }
    grad_data, grad_strides = attention.rows_of(grad, query.dtype, "grad")
    call = _call_of(problem, offsets)
    call.backward(
        native.extension.AttentionBackward(
            attention.input_of(with_tensors(problem, {"key_lengths": None, "position": 0})),
            grad=grad_data,
            grad_strides=grad_strides,
            weights=native.address(saved.weights),
            state=native.address(saved.state),
            offsets=native.address(saved.offsets),
            index=native.address(saved.index),
            weight=native.address(saved.weight),
            is_dense=native.address(saved.is_dense),
            sink_weights=native.address(saved.sink_weights),
            grad_query=by_query.data_ptr(),
            grad_query_strides=by_query.stride(),
            grad_key=by_key.data_ptr(),
            grad_key_strides=by_key.stride(),
            grad_value=by_value.data_ptr(),
            grad_value_strides=by_value.stride(),
            grad_alpha=native.address(by_row["alpha"]),
            grad_slopes=native.address(by_row["slopes"]),
            grad_sinks=native.address(by_row["sinks"]),
        )
    )
    by_token = {
        name: None if x is None else _in_order_of_queries(x, offsets, heads)
        for name, x in by_row.items()
    }
    by_alpha = by_token["alpha"]
    if by_alpha is not None:
        by_alpha = attention.sum_in_order(by_alpha, problem.alpha.shape[:3]).unsqueeze(-1)
    return AttentionGradients(
        query=by_query,
        key=by_key,
        value=by_value,
        alpha=by_alpha,
        slopes=attention.per_head(by_token["slopes"]),
        sinks=attention.per_head(by_token["sinks"]),
    )


def _in_order_of_queries(x: Tensor, offsets: Offsets, heads: int) -> Tensor:
    """Return ``(1, h, total_q)`` from rows that are numbered sequence by sequence."""
    sizes = [heads * (offsets.query[s + 1] - offsets.query[s]) for s in range(len(offsets.used))]
    return torch.cat([part.view(heads, -1) for part in x.split(sizes) if part.numel()], 1)[None]
