"""Attention by the compiled kernels, in batches that are not packed.

The extension decides what is saved for backward: whole weights, or the support of sparse heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adasparse.kernels.cpu import native
from adasparse.kernels.cpu.codes import code_arguments
from adasparse.kernels.cpu.rows import type_of
from adasparse.kernels.problem import AttentionGradients, AttentionProblem, SparseRows


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedWeights:
    """All weights ``(b, h, q, k)``, saved where keys are few.

    ``sink_weights`` are those of the sinks ``(b, h, q)``, or None without.
    """

    weights: Tensor
    sink_weights: Tensor | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedSupport:
    """The support of each row.

    Args:
        state: State of the solver ``(b, h, q, 3)`` in float64.
        offsets: ``(b h q + 1,)``: first entry of each row, and the end.
        index: Keys of the entries, in int32; dense heads have none.
        weight: Weights of the entries.
        is_dense: ``(b h,)``: whether a head is recomputed in the backward pass.
        sink_weights: Weights of the sinks ``(b, h, q)``, or None without.
    """

    state: Tensor
    offsets: Tensor
    index: Tensor
    weight: Tensor
    is_dense: Tensor
    sink_weights: Tensor | None = None


_NO_STRIDES: tuple[int, ...] = (0, 0, 0, 0)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that kernels compute and save in, for tensors of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def rows_of(x: Tensor, dtype: torch.dtype, name: str) -> tuple[int, tuple[int, ...]]:
    """Return address and strides of ``(b, h, n, size)`` whose last dimension is contiguous."""
    strides = x.stride()
    if x.dtype != dtype or len(strides) != 4 or (strides[3] != 1 and x.shape[3] > 1):
        raise ValueError(
            f"{name} must have rank 4, {dtype} and a contiguous last dimension; "
            f"got {x.dtype}, shape {tuple(x.shape)} and strides {strides}."
        )
    return x.data_ptr(), strides


def _broadcast_strides(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of ``x`` expanded to ``shape``: 0 along dimensions that are broadcast."""
    if x.numel() == 1 and x.dim() == 4:
        return _NO_STRIDES
    return x.expand(shape).stride()


def input_of(problem: AttentionProblem) -> "native.extension.AttentionInput":
    """Return the problem as the extension takes it; the mask and batch of one that is not packed.

    A packed one is a batch of one sequence, or has pages for sequences of keys.
    """
    query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
    native.check_available()
    dtype = query.dtype
    query_data, query_strides = rows_of(query, dtype, "query")
    key_data, key_strides = rows_of(key, dtype, "key")
    value_data, value_strides = rows_of(value, dtype, "value")
    batch, heads, q, d = query.shape
    key_batch, groups, k, key_d = key.shape
    value_batch, value_groups, value_k, e = value.shape
    if not (
        (problem.block_table is not None or batch == key_batch)
        and key_batch == value_batch
        and 0 < groups == value_groups
        and heads % groups == 0
        and k == value_k
        and d == key_d
    ):
        raise ValueError(
            "query (b, h, q, d), key (b, g, k, d) and value (b, g, k, e) must agree, and g must "
            f"divide h; got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    is_causal, window_right = problem.is_causal, problem.window_right
    if is_causal and problem.position:  # the extension's causal queries start at key 0
        is_causal, window_right = False, 0
    alpha = problem.alpha
    if alpha.dtype != torch.float64:
        raise ValueError(f"alpha must be float64; got {alpha.dtype}.")
    kind, mask_data, mask_strides = native.extension.MaskKind.NONE, 0, _NO_STRIDES
    element = mask_element = type_of(query)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        if not is_bool:
            if mask.dtype not in (dtype, compute_dtype(dtype)):
                raise ValueError(f"the mask must be bool or {dtype}; got {mask.dtype}.")
            mask_element = type_of(mask)
        kind = native.extension.MaskKind.BOOL if is_bool else native.extension.MaskKind.ADDED
        mask_data, mask_strides = mask.data_ptr(), _broadcast_strides(mask, (batch, heads, q, k))
    codes = {}
    if problem.codes is not None and problem.code_bounds is not None and dtype != torch.float64:
        codes = code_arguments(problem.codes, problem.code_bounds)
    return native.extension.AttentionInput(
        type=element,
        batch=batch,
        heads=heads,
        groups=groups,
        q=q,
        k=k,
        d=d,
        e=e,
        query=query_data,
        query_strides=query_strides,
        key=key_data,
        key_strides=key_strides,
        value=value_data,
        value_strides=value_strides,
        alpha=alpha.data_ptr(),
        alpha_strides=_broadcast_strides(alpha, (batch, heads, q, 1)),
        mask_kind=kind,
        mask_type=mask_element,
        mask=mask_data,
        mask_strides=mask_strides,
        key_lengths=native.address(problem.key_lengths, torch.int64),
        slopes=native.address(problem.slopes, torch.float64),
        sinks=native.address(problem.sinks, torch.float64),
        scale=problem.scale,
        softcap=problem.softcap or 0.0,
        is_causal=is_causal,
        window_left=-1 if problem.window_left is None else problem.window_left,
        window_right=-1 if window_right is None else window_right,
        window_position=problem.position,
        dropout_p=problem.dropout_p,
        seed=0 if problem.seed is None else int(problem.seed),
        threads=torch.get_num_threads(),
        **codes,
    )


def _arranged(
    support: "native.extension.Support",
    arguments: "native.extension.AttentionInput",
    problem: AttentionProblem,
    *,
    keeps_all: bool,
) -> dict[str, Tensor]:
    """Return the fields of ``SavedSupport`` that hold the entries."""
    batch, heads, q, _ = problem.query.shape
    offsets = torch.empty(batch * heads * q + 1, dtype=torch.int64)
    is_dense = torch.empty(batch * heads, dtype=torch.uint8)
    places = {"offsets": offsets.data_ptr(), "is_dense": is_dense.data_ptr()}
    size = support.arrange(input=arguments, keeps_all=keeps_all, **places)
    index = torch.empty(size, dtype=torch.int32)
    weight = torch.empty(size, dtype=compute_dtype(problem.query.dtype))
    support.move(index=index.data_ptr(), weight=weight.data_ptr(), **places)
    return {"offsets": offsets, "index": index, "weight": weight, "is_dense": is_dense}


def sum_in_order(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x.sum_to_size(shape)``, but the same for any number of threads, as NumPy adds."""
    summed = tuple(i for i, size in enumerate(shape) if size == 1)
    return torch.from_numpy(np.asarray(x.numpy().sum(axis=summed, keepdims=True)))


def empty_rows(shape: Sequence[int], query: Tensor) -> Tensor:
    """``(b, h, n, size)`` in the order of memory of the query, whose heads may lie side by side.

    So would the keys and values of a model whose queries do, had a cache not copied them.
    """
    b, h, n, size = shape
    if 0 < query.stride(1) < query.stride(2):
        return native.in_large_pages(query.new_empty(b, n, h, size)).transpose(1, 2)
    return native.in_large_pages(query.new_empty(b, h, n, size))


@native.raises_memory_error
def attention_forward(
    problem: AttentionProblem, *, keep: bool, support_bytes: int | None = None
) -> tuple[Tensor, SavedWeights | SavedSupport | None]:
    """See ``AttentionKernels.attention_forward``; any floating dtype.

    Half precision is read as it is and computed in float32, in which weights are saved, too.

    Args:
        problem: The call.
        keep: Whether to save what backward needs.
        support_bytes: Memory for the support; heads beyond it are recomputed in the backward pass.
            None for ``SUPPORT_BYTES`` of the extension.
    """
    arguments = input_of(problem)
    batch, heads, q, _ = problem.query.shape
    out = empty_rows((batch, heads, q, problem.value.shape[-1]), problem.query)
    address, strides = out.data_ptr(), out.stride()
    if not keep:
        native.extension.attention_forward(arguments, out=address, out_strides=strides)
        return out, None
    sinks = None
    if problem.sinks is not None:
        sinks = torch.empty(batch, heads, q, dtype=compute_dtype(out.dtype))
    if native.extension.saves_weights(arguments):
        weights = torch.empty(batch, heads, q, problem.key.shape[2], dtype=compute_dtype(out.dtype))
        native.extension.attention_forward(
            arguments,
            out=address,
            out_strides=strides,
            weights=weights.data_ptr(),
            sink_weights=native.address(sinks),
        )
        return out, SavedWeights(weights=weights, sink_weights=sinks)
    state = torch.empty(batch, heads, q, 3, dtype=torch.float64)
    support = native.extension.Support(arguments)
    native.extension.attention_forward(
        arguments,
        out=address,
        out_strides=strides,
        state=state.data_ptr(),
        sink_weights=native.address(sinks),
        support=support,
        support_bytes=native.extension.SUPPORT_BYTES if support_bytes is None else support_bytes,
    )
    entries = _arranged(support, arguments, problem, keeps_all=False)
    return out, SavedSupport(state=state, sink_weights=sinks, **entries)


def _addresses(saved: SavedWeights | SavedSupport) -> dict[str, int]:
    """Return the saved tensors as arguments of the extension."""
    if isinstance(saved, SavedWeights):
        return {
            "weights": native.address(saved.weights),
            "sink_weights": native.address(saved.sink_weights),
        }
    return {
        "state": native.address(saved.state, torch.float64),
        "offsets": native.address(saved.offsets, torch.int64),
        "index": native.address(saved.index, torch.int32),
        "weight": native.address(saved.weight),
        "is_dense": native.address(saved.is_dense, torch.uint8),
        "sink_weights": native.address(saved.sink_weights),
    }


@native.raises_memory_error
def attention_backward(
    problem: AttentionProblem,
    saved: SavedWeights | SavedSupport,
    grad: Tensor,
    needs: frozenset[str],
) -> AttentionGradients:
    """See ``AttentionKernels.attention_backward``; query, key and value always get theirs."""
    query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
    rows = query.shape[:3]
    if grad.shape != (*rows, value.shape[3]):
        raise ValueError(f"grad must be {(*rows, value.shape[3])}; got {tuple(grad.shape)}.")
    by_query, by_key, by_value = (empty_rows(x.shape, query) for x in (query, key, value))
    by_alpha, by_slope, by_sink = (
        torch.empty(rows, dtype=torch.float64) if name in needs else None
        for name in ("alpha", "slopes", "sinks")
    )
    by_mask: Tensor | None = None
    mask_strides = _NO_STRIDES
    if "mask" in needs and mask is not None:
        by_mask = torch.zeros(mask.shape, dtype=compute_dtype(query.dtype))
        mask_strides = by_mask.expand(*rows, key.shape[2]).stride()
    grad_data, grad_strides = rows_of(grad, query.dtype, "grad")
    call = native.extension.AttentionBackward(
        input_of(problem),
        grad=grad_data,
        grad_strides=grad_strides,
        grad_query=by_query.data_ptr(),
        grad_query_strides=by_query.stride(),
        grad_key=by_key.data_ptr(),
        grad_key_strides=by_key.stride(),
        grad_value=by_value.data_ptr(),
        grad_value_strides=by_value.stride(),
        grad_alpha=native.address(by_alpha),
        grad_slopes=native.address(by_slope),
        grad_sinks=native.address(by_sink),
        grad_mask=native.address(by_mask),
        grad_mask_strides=mask_strides,
        **_addresses(saved),
    )
    native.extension.attention_backward(call)
    if by_alpha is not None:
        by_alpha = sum_in_order(by_alpha, problem.alpha.shape[:3]).unsqueeze(-1)
    return AttentionGradients(
        query=by_query,
        key=by_key,
        value=by_value,
        alpha=by_alpha,
        mask=by_mask,
        slopes=per_head(by_slope),
        sinks=per_head(by_sink),
    )


def per_head(x: Tensor | None) -> Tensor | None:
    """Sum ``(b, h, q)`` to ``(h,)``."""
    return None if x is None else sum_in_order(x, (1, x.shape[1], 1)).reshape(-1)


@native.raises_memory_error
def attention_support(problem: AttentionProblem) -> SparseRows:
    """See ``AttentionKernels.attention_support``."""
    arguments = input_of(problem)
    support = native.extension.Support(arguments)
    native.extension.attention_support(arguments, support=support)
    entries = _arranged(support, arguments, problem, keeps_all=True)
    return SparseRows(crow=entries["offsets"], col=entries["index"].long(), value=entries["weight"])


@native.raises_memory_error
def attention_rescored(problem: AttentionProblem) -> Tensor:
    """Return how many scores few queries computed in float32, ``(b, h, q)``; to measure codes.

    All visible keys, unless the keys come with codes that the processor can multiply.
    """
    arguments = input_of(problem)
    batch, heads, q, _ = problem.query.shape
    out = empty_rows((batch, heads, q, problem.value.shape[-1]), problem.query)
    rescored = torch.full((batch, heads, q), problem.key.shape[2])
    native.extension.attention_forward(
        arguments, out=out.data_ptr(), out_strides=out.stride(), rescored=rescored.data_ptr()
    )
    return rescored


@native.raises_memory_error
def attention_only_scores(problem: AttentionProblem) -> None:
    """Run the scoring stage of the forward alone, to measure it."""
    arguments = input_of(problem)
    native.extension.attention_scores(arguments)
