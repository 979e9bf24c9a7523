"""The compiled kernels for CPU tensors, and what to know about them.

``ADASPARSE_ISA`` in the environment picks an instruction set by name at import.
"""

import os
from typing import Any

import torch
from torch import Tensor

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
