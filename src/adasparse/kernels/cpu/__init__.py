"""The backend ``cpu``: the compiled C++ core, for CPU tensors.

``ADASPARSE_ISA`` in the environment picks an instruction set by name at import.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adasparse.kernels.problem import (
    AttentionGradients,
    AttentionProblem,
    LossProblem,
    SparseRows,
)

_native: Any = None
#: Why the compiled kernels are missing, or an empty string.
missing_reason = ""
try:
    from adasparse.kernels import _native  # type: ignore[attr-defined, no-redef]
except ImportError as error:
    missing_reason = str(error)
else:
    if _wanted_isa := os.environ.get("ADASPARSE_ISA"):
        _native.use_isa(_wanted_isa)

_TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


def is_available() -> bool:
    """Whether the compiled kernels are installed."""
    return _native is not None


def available_isas() -> list[str]:
    """Instruction sets that are compiled in and run here, best first."""
    return list(_native.available_isas()) if _native else []


def isa() -> str:
    """Return the instruction set in use."""
    return str(_native.isa()) if _native else ""


def use_isa(name: str) -> None:
    """Switch to the instruction set ``name``, one of ``available_isas()``."""
    assert _native is not None
    _native.use_isa(name)


def has_openmp() -> bool:
    """Whether the kernels share PyTorch's OpenMP threads."""
    return bool(_native.has_openmp) if _native else False


def _rows_of_alpha(alpha: Tensor) -> tuple[int, int]:
    """Address and stride of a float64 alpha with one value or one per row."""
    return alpha.data_ptr(), int(alpha.numel() != 1)


def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """See ``RowKernels.entmax_forward``; any floating dtype."""
    assert _native is not None and scores.is_contiguous() and alpha.is_contiguous()
    weights = torch.empty_like(scores)
    rows, n = scores.shape
    _native.entmax_forward(
        _TYPES[scores.dtype],
        scores.data_ptr(),
        weights.data_ptr(),
        *_rows_of_alpha(alpha),
        rows,
        n,
        torch.get_num_threads(),
    )
    return weights


def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``RowKernels.entmax_backward``; any floating dtype."""
    assert _native is not None and weights.is_contiguous() and grad.is_contiguous()
    assert weights.dtype == grad.dtype and alpha.is_contiguous()
    grad_scores = torch.empty_like(weights)
    rows, n = weights.shape
    grad_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    _native.entmax_backward(
        _TYPES[weights.dtype],
        weights.data_ptr(),
        grad.data_ptr(),
        grad_scores.data_ptr(),
        _address(grad_alpha),
        *_rows_of_alpha(alpha),
        rows,
        n,
        torch.get_num_threads(),
    )
    return grad_scores, grad_alpha


def _address(x: Tensor | None) -> int:
    assert x is None or x.is_contiguous()
    return 0 if x is None else x.data_ptr()


def _target_arguments(problem: LossProblem) -> tuple[int, int, int, int, float]:
    return (
        _address(problem.index),
        _address(problem.probability),
        _address(problem.weight),
        problem.ignore_index,
        problem.label_smoothing,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedLoss:
    """State of the solver for each row, ``(rows, 3)`` in float64."""

    state: Tensor


def empty_loss_saved(problem: LossProblem) -> SavedLoss:
    """See ``LossKernels.empty_loss_saved``."""
    return SavedLoss(
        state=problem.scores.new_empty(problem.scores.shape[0], 3, dtype=torch.float64)
    )


def loss_forward(problem: LossProblem) -> tuple[Tensor, SavedLoss]:
    """See ``LossKernels.loss_forward``; any floating dtype."""
    scores, alpha = problem.scores, problem.alpha
    assert _native is not None and scores.is_contiguous() and alpha.is_contiguous()
    rows, n = scores.shape
    loss = torch.empty(rows, dtype=torch.float64)
    saved = empty_loss_saved(problem)
    _native.loss_forward(
        _TYPES[scores.dtype],
        scores.data_ptr(),
        loss.data_ptr(),
        saved.state.data_ptr(),
        *_target_arguments(problem),
        *_rows_of_alpha(alpha),
        rows,
        n,
        torch.get_num_threads(),
    )
    return loss, saved


def loss_backward(
    problem: LossProblem, saved: SavedLoss, grad: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``LossKernels.loss_backward``."""
    scores = problem.scores
    assert _native is not None and scores.is_contiguous() and grad.dtype == torch.float64
    rows, n = scores.shape
    grad_scores = torch.empty_like(scores)
    grad_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    _native.loss_backward(
        _TYPES[scores.dtype],
        scores.data_ptr(),
        _address(saved.state),
        _address(grad),
        grad_scores.data_ptr(),
        _address(grad_alpha),
        *_target_arguments(problem),
        *_rows_of_alpha(problem.alpha),
        rows,
        n,
        torch.get_num_threads(),
    )
    return grad_scores, grad_alpha


#: Memory for the support of one call; heads beyond it are recomputed in the backward pass.
SUPPORT_BYTES = 2**29


def _dense_share(num_keys: int) -> float:
    """Density from which recomputing a head is cheaper than walking its support, as measured."""
    return 1.0 if num_keys <= 32 else 0.5


def _attention_input(problem: AttentionProblem) -> Any:
    query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
    batch, heads, q, d = query.shape
    groups, k = key.shape[1:3]
    # Broadcast dimensions get a stride of zero; the tensors stay as they are.
    alpha = problem.alpha.expand(batch, heads, q, 1)
    if mask is None:
        mask_arguments: tuple[int, int, tuple[int, ...]] = (0, 0, (0, 0, 0, 0))
    else:
        kind = 1 if mask.dtype == torch.bool else 2
        expanded = mask.expand(batch, heads, q, k)
        mask_arguments = (kind, mask.data_ptr(), expanded.stride())
    return _native.AttentionInput(
        query.dtype == torch.float64,
        (batch, heads, groups, q, k, d, value.shape[-1]),
        query.data_ptr(),
        query.stride(),
        key.data_ptr(),
        key.stride(),
        value.data_ptr(),
        value.stride(),
        alpha.data_ptr(),
        alpha.stride(),
        *mask_arguments,
        _address(problem.key_lengths),
        _address(problem.slopes),
        problem.scale,
        problem.is_causal,
        problem.dropout_p,
        0 if problem.seed is None else int(problem.seed),
        torch.get_num_threads(),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedWeights:
    """All weights ``(b, h, q, k)``, saved where rows are short."""

    weights: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedSupport:
    """The support of each row.

    Args:
        state: State of the solver ``(b, h, q, 3)`` in float64.
        offsets: ``(b h q + 1,)``: first entry of each row, and the end.
        index: Keys of the entries, in int32; dense heads have none.
        weight: Their weights.
        is_dense: ``(b h,)``: whether a head is recomputed in the backward pass.
    """

    state: Tensor
    offsets: Tensor
    index: Tensor
    weight: Tensor
    is_dense: Tensor


def _arrange(support: Any, problem: AttentionProblem, dense_share: float) -> dict[str, Tensor]:
    """Return the fields of ``SavedSupport`` that hold the entries."""
    batch, heads, q, _ = problem.query.shape
    offsets = torch.empty(batch * heads * q + 1, dtype=torch.int64)
    is_dense = torch.empty(batch * heads, dtype=torch.uint8)
    size = support.arrange(offsets.data_ptr(), is_dense.data_ptr(), dense_share)
    index = torch.empty(size, dtype=torch.int32)
    weight = torch.empty(size, dtype=problem.query.dtype)
    support.move(offsets.data_ptr(), is_dense.data_ptr(), index.data_ptr(), weight.data_ptr())
    return {"offsets": offsets, "index": index, "weight": weight, "is_dense": is_dense}


def _sum_in_order(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x.sum_to_size(shape)``, but the same for any number of threads, as NumPy adds."""
    summed = tuple(i for i, size in enumerate(shape) if size == 1)
    return torch.from_numpy(np.asarray(x.numpy().sum(axis=summed, keepdims=True)))


def _empty_rows(shape: Sequence[int], query: Tensor) -> Tensor:
    """``(b, h, n, size)`` in the order of memory of the query, whose heads may lie side by side.

    So would the keys and values of a model whose queries do, had a cache not copied them.
    """
    b, h, n, size = shape
    if 0 < query.stride(1) < query.stride(2):
        return query.new_empty(b, n, h, size).transpose(1, 2)
    return query.new_empty(b, h, n, size)


def attention_forward(
    problem: AttentionProblem, *, keep: bool
) -> tuple[Tensor, SavedWeights | SavedSupport | None]:
    """See ``AttentionKernels.attention_forward``; in float32 or float64."""
    assert _native is not None
    arguments = _attention_input(problem)
    batch, heads, q, _ = problem.query.shape
    out = _empty_rows((batch, heads, q, problem.value.shape[-1]), problem.query)
    k = problem.key.shape[2]
    dense_share = _dense_share(k)
    call = (arguments, out.data_ptr(), out.stride())
    if not keep:
        _native.attention_forward(*call, 0, 0, None, 0, dense_share)
        return out, None
    if _native.has_short_rows(arguments):
        weights = torch.empty(batch, heads, q, k, dtype=out.dtype)
        _native.attention_forward(*call, weights.data_ptr(), 0, None, 0, dense_share)
        return out, SavedWeights(weights=weights)
    state = torch.empty(batch, heads, q, 3, dtype=torch.float64)
    support = _native.Support(arguments)
    entry = 4 + out.element_size()
    fair_share = SUPPORT_BYTES // (entry * max(1, batch * heads * q))
    limit = min(fair_share, max(64, int(dense_share * k)))
    _native.attention_forward(*call, 0, state.data_ptr(), support, limit, dense_share)
    return out, SavedSupport(state=state, **_arrange(support, problem, dense_share))


def attention_backward(
    problem: AttentionProblem,
    saved: SavedWeights | SavedSupport,
    grad: Tensor,
    needs: frozenset[str],
) -> AttentionGradients:
    """See ``AttentionKernels.attention_backward``; query, key and value always get theirs."""
    assert _native is not None
    query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
    if isinstance(saved, SavedWeights):
        kept = [saved.weights.data_ptr(), 0, 0, 0, 0, 0]
    else:
        support = (saved.state, saved.offsets, saved.index, saved.weight, saved.is_dense)
        kept = [0, *(x.data_ptr() for x in support)]
    by_query, by_key, by_value = (_empty_rows(x.shape, query) for x in (query, key, value))
    rows = query.shape[:3]
    by_alpha = torch.empty(rows, dtype=torch.float64) if "alpha" in needs else None
    by_slope = torch.empty(rows, dtype=torch.float64) if "slopes" in needs else None
    by_mask: Tensor | None = None
    mask_strides: tuple[int, ...] = (0, 0, 0, 0)
    if "mask" in needs:
        assert mask is not None
        by_mask = torch.zeros(mask.shape, dtype=query.dtype)
        mask_strides = by_mask.expand(*rows, key.shape[2]).stride()
    _native.attention_backward(
        _attention_input(problem),
        grad.data_ptr(),
        grad.stride(),
        *kept,
        by_query.data_ptr(),
        by_query.stride(),
        by_key.data_ptr(),
        by_key.stride(),
        by_value.data_ptr(),
        by_value.stride(),
        _address(by_alpha),
        _address(by_slope),
        _address(by_mask),
        mask_strides,
    )
    if by_alpha is not None:
        by_alpha = _sum_in_order(by_alpha, problem.alpha.shape[:3]).unsqueeze(-1)
    return AttentionGradients(
        query=by_query,
        key=by_key,
        value=by_value,
        alpha=by_alpha,
        mask=by_mask,
        slopes=None if by_slope is None else _sum_in_order(by_slope, (1, rows[1], 1)).reshape(-1),
    )


def attention_support(problem: AttentionProblem) -> SparseRows:
    """See ``AttentionKernels.attention_support``."""
    assert _native is not None
    arguments = _attention_input(problem)
    support = _native.Support(arguments)
    limit = 2**62 // max(1, problem.query.shape[2])
    _native.attention_forward(arguments, 0, (0, 0, 0, 0), 0, 0, support, limit, 1)
    found = _arrange(support, problem, 1.0)
    return SparseRows(crow=found["offsets"], col=found["index"].long(), value=found["weight"])


def attention_only_scores(problem: AttentionProblem) -> None:
    """Run the scoring stage of the forward alone, to measure it."""
    assert _native is not None
    _native.attention_scores(_attention_input(problem))
