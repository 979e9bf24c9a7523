"""The compiled kernels for CPU tensors, and what to know about them.

``ADASPARSE_ISA`` in the environment picks an instruction set by name at import.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adasparse.kernels.problem import AttentionGradients, AttentionProblem
from adasparse.kernels.target import Target

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
    """See ``reference.entmax_forward``; any floating dtype."""
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
    """See ``reference.entmax_backward``; any floating dtype, alpha's gradient in float64."""
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


def _target_arguments(target: Target) -> tuple[int, int, int, int, float]:
    return (
        _address(target.index),
        _address(target.probability),
        _address(target.weight),
        target.ignore_index,
        target.label_smoothing,
    )


def loss_forward(scores: Tensor, alpha: Tensor, target: Target) -> tuple[Tensor, Tensor]:
    """Return the loss of each row ``(rows,)`` and what the backward needs, both in float64."""
    assert _native is not None and scores.is_contiguous() and alpha.is_contiguous()
    rows, n = scores.shape
    loss = torch.empty(rows, dtype=torch.float64)
    state = torch.empty(rows, 3, dtype=torch.float64)
    _native.loss_forward(
        _TYPES[scores.dtype],
        scores.data_ptr(),
        loss.data_ptr(),
        state.data_ptr(),
        *_target_arguments(target),
        *_rows_of_alpha(alpha),
        rows,
        n,
        torch.get_num_threads(),
    )
    return loss, state


def loss_backward(
    scores: Tensor, state: Tensor, grad: Tensor, alpha: Tensor, target: Target, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients by scores ``(rows, n)`` and alpha ``(rows,)`` from that of each row's loss."""
    assert _native is not None and scores.is_contiguous() and grad.dtype == torch.float64
    rows, n = scores.shape
    grad_scores = torch.empty_like(scores)
    grad_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    _native.loss_backward(
        _TYPES[scores.dtype],
        scores.data_ptr(),
        _address(state),
        _address(grad),
        grad_scores.data_ptr(),
        _address(grad_alpha),
        *_target_arguments(target),
        *_rows_of_alpha(alpha),
        rows,
        n,
        torch.get_num_threads(),
    )
    return grad_scores, grad_alpha


#: What the support of one call may take in memory; heads beyond that are recomputed instead.
SUPPORT_BYTES = 2**29


def _dense_share(num_keys: int) -> float:
    """From what density on recomputing a head is cheaper than walking its support, as measured."""
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


def _arrange(support: Any, problem: AttentionProblem, dense_share: float) -> tuple[Tensor, ...]:
    """Offsets of the rows, indices and weights of heads that are not dense, and which ones are."""
    batch, heads, q, _ = problem.query.shape
    offsets = torch.empty(batch * heads * q + 1, dtype=torch.int64)
    is_dense = torch.empty(batch * heads, dtype=torch.uint8)
    size = support.arrange(offsets.data_ptr(), is_dense.data_ptr(), dense_share)
    index = torch.empty(size, dtype=torch.int32)
    weight = torch.empty(size, dtype=problem.query.dtype)
    support.move(offsets.data_ptr(), is_dense.data_ptr(), index.data_ptr(), weight.data_ptr())
    return offsets, index, weight, is_dense


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
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the output ``(b, h, q, e)`` and, if ``keep``, what the backward needs.

    All numbers are float32 or all float64, with rows contiguous along the last dimension.
    """
    assert _native is not None
    arguments = _attention_input(problem)
    batch, heads, q, _ = problem.query.shape
    out = _empty_rows((batch, heads, q, problem.value.shape[-1]), problem.query)
    k = problem.key.shape[2]
    dense_share = _dense_share(k)
    call = (arguments, out.data_ptr(), out.stride())
    if not keep:
        _native.attention_forward(*call, 0, 0, None, 0, dense_share)
        return out, ()
    if _native.has_short_rows(arguments):
        weights = torch.empty(batch, heads, q, k, dtype=out.dtype)
        _native.attention_forward(*call, weights.data_ptr(), 0, None, 0, dense_share)
        return out, (weights,)
    state = torch.empty(batch, heads, q, 3, dtype=torch.float64)
    support = _native.Support(arguments)
    entry = 4 + out.element_size()
    fair_share = SUPPORT_BYTES // (entry * max(1, batch * heads * q))
    limit = min(fair_share, max(64, int(dense_share * k)))
    _native.attention_forward(*call, 0, state.data_ptr(), support, limit, dense_share)
    return out, (state, *_arrange(support, problem, dense_share))


def attention_backward(
    problem: AttentionProblem,
    saved: tuple[Tensor, ...],
    grad: Tensor,
    *,
    with_alpha: bool,
    with_mask: bool,
    with_slopes: bool,
) -> AttentionGradients:
    """Gradients from that of the output and what the forward has kept."""
    assert _native is not None
    query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
    if grad.stride(-1) != 1:
        grad = grad.contiguous()
    # Whole weights alone, or state and support.
    kept = [x.data_ptr() for x in saved]
    kept = [*kept, 0, 0, 0, 0, 0] if len(kept) == 1 else [0, *kept]
    by_query, by_key, by_value = (_empty_rows(x.shape, query) for x in (query, key, value))
    rows = query.shape[:3]
    by_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    by_slope = torch.empty(rows, dtype=torch.float64) if with_slopes else None
    by_mask: Tensor | None = None
    mask_strides: tuple[int, ...] = (0, 0, 0, 0)
    if with_mask:
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


def attention_support(problem: AttentionProblem) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of all rows ``(b h q, k)`` as a CSR matrix: crow, col, value."""
    assert _native is not None
    arguments = _attention_input(problem)
    support = _native.Support(arguments)
    limit = 2**62 // max(1, problem.query.shape[2])
    _native.attention_forward(arguments, 0, (0, 0, 0, 0), 0, 0, support, limit, 1)
    offsets, index, weight, _ = _arrange(support, problem, 1.0)
    return offsets, index.long(), weight


def attention_only_scores(problem: AttentionProblem) -> None:
    """Run the scoring stage of the forward alone, to measure it."""
    assert _native is not None
    _native.attention_scores(_attention_input(problem))
