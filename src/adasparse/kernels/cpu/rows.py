"""entmax of rows by the compiled kernels."""

import torch
from torch import Tensor

from adasparse.kernels.cpu import native

if native.is_available():
    _TYPES = {
        torch.float32: native.extension.Type.FLOAT32,
        torch.float64: native.extension.Type.FLOAT64,
        torch.bfloat16: native.extension.Type.BFLOAT16,
        torch.float16: native.extension.Type.FLOAT16,
    }


def type_of(x: Tensor) -> "native.extension.Type":
    """Return the element type of a tensor as the extension names it."""
    if x.dtype not in _TYPES:
        raise TypeError(f"kernels take {', '.join(map(str, _TYPES))}; got {x.dtype}.")
    return _TYPES[x.dtype]


@native.raises_memory_error
def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """See ``RowKernels.entmax_forward``; any floating dtype."""
    native.check_available()
    rows, n = scores.shape
    weights = native.in_large_pages(torch.empty_like(scores))
    native.extension.entmax_forward(
        type=type_of(scores),
        scores=native.address(scores),
        weights=native.address(weights),
        alpha=native.address(alpha, torch.float64),
        alpha_stride=alpha_stride(alpha, rows),
        rows=rows,
        n=n,
        threads=torch.get_num_threads(),
    )
    return weights


@native.raises_memory_error
def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``RowKernels.entmax_backward``; any floating dtype."""
    native.check_available()
    rows, n = weights.shape
    if grad.shape != weights.shape:
        raise ValueError(
            f"grad must have the shape of the weights, {tuple(weights.shape)}; "
            f"got {tuple(grad.shape)}."
        )
    grad_scores = native.in_large_pages(torch.empty_like(weights))
    grad_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    native.extension.entmax_backward(
        type=type_of(weights),
        weights=native.address(weights),
        grad=native.address(grad, weights.dtype),
        grad_scores=native.address(grad_scores),
        grad_alpha=native.address(grad_alpha),
        alpha=native.address(alpha, torch.float64),
        alpha_stride=alpha_stride(alpha, rows),
        rows=rows,
        n=n,
        threads=torch.get_num_threads(),
    )
    return grad_scores, grad_alpha


def alpha_stride(alpha: Tensor, rows: int) -> int:
    """Return the stride of an alpha with one value or one per row."""
    if alpha.numel() not in (1, rows):
        raise ValueError(f"alpha must have 1 or {rows} values; got {alpha.numel()}.")
    return int(alpha.numel() != 1)
