"""The entmax operator: probabilities of which many are exactly zero."""

import math
import warnings
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from adasparse.kernels import cpu, plain

BACKENDS = ("auto", "native", "plain")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_has_warned = False


def choose_kernels(device: torch.device, backend: str) -> ModuleType:
    """Return the module of kernels that serves ``device``.

    ``"auto"`` takes the compiled ones for CPU tensors and PyTorch alone elsewhere; if they are not
    installed it says so once and goes on with PyTorch alone.
    """
    global _has_warned
    if backend == "plain":
        return plain
    if device.type == "cpu" and cpu.is_available():
        return cpu
    if backend == "native":
        raise RuntimeError(
            "backend='native' needs CPU tensors and the compiled kernels; got a tensor on "
            f"{device}"
            + (f" and no kernels ({cpu.missing_reason})." if cpu.missing_reason else ".")
        )
    if device.type == "cpu" and not _has_warned:
        _has_warned = True
        warnings.warn(
            f"adasparse runs without its compiled kernels ({cpu.missing_reason}); plain PyTorch "
            "serves, more slowly. Run 'adasparse doctor' for details.",
            RuntimeWarning,
            stacklevel=4,
        )
    return plain


def check_backend(backend: str) -> None:
    """Raise unless ``backend`` is known."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {sorted(BACKENDS)}; got {backend!r}.")


def check_scores(scores: Tensor, dim: int) -> int:
    """Raise unless ``scores`` can be normalized along ``dim``; return ``dim`` counted from 0."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores must be a tensor; got {type(scores).__name__}.")
    if scores.dtype not in DTYPES:
        raise TypeError(
            "scores must be float32, float64, bfloat16 or float16; "
            f"got {scores.dtype}. Convert them with .float() first."
        )
    if scores.layout != torch.strided:
        raise TypeError(f"scores must be a dense (strided) tensor; got {scores.layout}.")
    rank = max(scores.dim(), 1)
    if not -rank <= dim < rank:
        raise IndexError(f"dim must be from {-rank} to {rank - 1}; got {dim}.")
    return dim % rank


def as_alpha(alpha: float | Tensor, scores: Tensor, dim: int, *, lowest: float = 1.0) -> Tensor:
    """Return alpha as a tensor of rank 0, or of that of ``scores`` with size 1 along ``dim``."""
    if not isinstance(alpha, Tensor):
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
            raise TypeError(f"alpha must be a number or a tensor; got {type(alpha).__name__}.")
        if not lowest <= alpha < math.inf:
            raise ValueError(f"alpha must be at least {lowest:g} and finite; got {alpha}.")
        return torch.tensor(alpha, dtype=torch.float64)
    if not alpha.is_floating_point():
        raise TypeError(f"alpha must be a floating point tensor; got {alpha.dtype}.")
    if alpha.dim() == 0:
        return alpha
    if alpha.device != scores.device:
        raise ValueError(
            f"alpha must be on the device of scores, {scores.device}; got {alpha.device}."
        )
    expected = list(scores.shape)
    expected[dim : dim + 1] = [1] if scores.dim() else []
    padded = [1] * (len(expected) - alpha.dim()) + list(alpha.shape)
    if len(padded) != len(expected) or any(
        got not in (1, want) for got, want in zip(padded, expected, strict=True)
    ):
        raise ValueError(
            f"alpha must broadcast to {tuple(expected)}, the shape of scores "
            f"{tuple(scores.shape)} with size 1 along dim {dim}; got {tuple(alpha.shape)}."
        )
    return alpha.reshape(padded)


def check_alpha_values(alpha: Tensor, lowest: float) -> None:
    """Raise if an alpha in CPU memory is below ``lowest``; others would stall the device."""
    if alpha.device.type != "cpu":
        return
    is_fine = alpha.item() >= lowest if alpha.numel() == 1 else bool((alpha >= lowest).all())
    if not is_fine:
        smallest = (alpha.isnan().any().item() and math.nan) or alpha.min().item()
        raise ValueError(f"alpha must be at least {lowest:g}; got {smallest}.")


def rows_of(x: Tensor) -> Tensor:
    """``(..., n)`` as contiguous ``(rows, n)``."""
    return x.contiguous().view(-1, x.shape[-1]) if x.numel() else x.reshape(0, x.shape[-1])


def alpha_rows(alpha: Tensor, batch: torch.Size) -> Tensor:
    """Alpha in float64: one value, or one for each of the rows of ``batch``."""
    alpha = alpha.detach().double()
    if alpha.numel() == 1:
        return alpha
    return alpha.expand(*batch, 1).reshape(-1).contiguous()


def sum_to_alpha(grad_rows: Tensor, alpha: Tensor, batch: torch.Size) -> Tensor:
    """Add up the gradients of rows that share an alpha."""
    if alpha.numel() == 1:
        return grad_rows.sum().reshape(alpha.shape).to(alpha)
    return grad_rows.reshape(*batch, 1).sum_to_size(alpha.shape).to(alpha)


def _forward(scores: Tensor, alpha: Tensor, lowest: float, backend: str) -> Tensor:
    check_alpha_values(alpha, lowest)
    kernels = choose_kernels(scores.device, backend)
    rows = rows_of(scores)
    if rows.numel() == 0:
        return torch.zeros_like(scores, memory_format=torch.contiguous_format)
    weights: Tensor = kernels.entmax_forward(rows, alpha_rows(alpha, scores.shape[:-1]))
    return weights.view(scores.shape)


def _backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, with_alpha: bool, backend: str
) -> tuple[Tensor, Tensor | None]:
    if weights.numel() == 0:
        return torch.zeros_like(weights), torch.zeros_like(alpha) if with_alpha else None
    batch = weights.shape[:-1]
    kernels = choose_kernels(weights.device, backend)
    grad_scores, grad_alpha = kernels.entmax_backward(
        rows_of(weights),
        rows_of(grad.to(weights.dtype)),
        alpha_rows(alpha, batch),
        with_alpha=with_alpha,
    )
    if with_alpha:
        grad_alpha = sum_to_alpha(grad_alpha, alpha, batch)
    return grad_scores.view(weights.shape), grad_alpha


def _differentiable_backward(weights: Tensor, grad: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The backward in PyTorch operations, for gradients of gradients."""
    batch = weights.shape[:-1]
    # detach() would cut what a second derivative by alpha needs, so no alpha_rows here
    wide = alpha.double().expand(*batch, 1).reshape(-1)
    grad_scores, grad_alpha = plain.entmax_backward(
        weights.reshape(-1, weights.shape[-1]),
        grad.reshape(-1, weights.shape[-1]),
        wide,
        with_alpha=True,
    )
    assert grad_alpha is not None
    return grad_scores.reshape(weights.shape), sum_to_alpha(grad_alpha, alpha, batch)


class _ShortEntmax(torch.autograd.Function):
    """Over the last dimension; the short way, for eager calls."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor, lowest: float, backend: str) -> Tensor:
        weights = _forward(scores, alpha, lowest, backend)
        ctx.backend = backend
        ctx.save_for_backward(weights, alpha)
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, alpha = ctx.saved_tensors
        with_alpha = ctx.needs_input_grad[1]
        gradients: tuple[Tensor, Tensor | None]
        if torch.is_grad_enabled():
            gradients = _differentiable_backward(weights, grad, alpha)
        else:
            gradients = _backward(weights, grad, alpha, with_alpha, ctx.backend)
        return gradients[0], gradients[1] if with_alpha else None, None, None


class _Entmax(_ShortEntmax):
    """The same for torch.func; PyTorch takes ten times as long over this form."""

    @staticmethod
    def forward(  # type: ignore[override]
        scores: Tensor, alpha: Tensor, lowest: float, backend: str
    ) -> Tensor:
        return _forward(scores, alpha, lowest, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, alpha, _, ctx.backend = inputs
        ctx.save_for_backward(output, alpha)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        scores: Tensor,
        alpha: Tensor,
        lowest: float,
        backend: str,
    ) -> tuple[Tensor, int]:
        scores, alpha = _batch_first(info.batch_size, in_dims, scores, alpha)
        return _Entmax.apply(scores, alpha, lowest, backend), 0


def _batch_first(
    size: int, in_dims: tuple[Any, ...], scores: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    """Move vmap's dimension to the front of both, alpha keeping or getting the rank of scores."""
    scores = (
        scores.expand(size, *scores.shape) if in_dims[0] is None else scores.movedim(in_dims[0], 0)
    )
    if in_dims[1] is not None:
        alpha = alpha.movedim(in_dims[1], 0)
        alpha = alpha.reshape(size, *[1] * (scores.dim() - alpha.dim()), *alpha.shape[1:])
    return scores, alpha


@torch.library.custom_op("adasparse::entmax", mutates_args=())
def _entmax_op(scores: Tensor, alpha: Tensor, lowest: float, backend: str) -> Tensor:
    return _forward(scores, alpha, lowest, backend)


@_entmax_op.register_fake
def _(scores: Tensor, alpha: Tensor, lowest: float, backend: str) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


@torch.library.custom_op("adasparse::entmax_backward", mutates_args=())
def _entmax_backward_op(
    weights: Tensor, grad: Tensor, alpha: Tensor, with_alpha: bool, backend: str
) -> tuple[Tensor, Tensor]:
    grad_scores, grad_alpha = _backward(weights, grad, alpha, with_alpha, backend)
    return grad_scores, torch.zeros_like(alpha) if grad_alpha is None else grad_alpha


@_entmax_backward_op.register_fake
def _(
    weights: Tensor, grad: Tensor, alpha: Tensor, with_alpha: bool, backend: str
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weights), torch.empty_like(alpha)


def _op_setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, alpha, _, ctx.backend = inputs
    ctx.save_for_backward(output, alpha)


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weights, alpha = ctx.saved_tensors
    with_alpha = ctx.needs_input_grad[1]
    grad_scores, grad_alpha = _entmax_backward_op(weights, grad, alpha, with_alpha, ctx.backend)
    return grad_scores, grad_alpha if with_alpha else None, None, None


_entmax_op.register_autograd(_op_backward, setup_context=_op_setup_context)


def choose_route(short: Any, functional: Any, registered: Any, *tensors: Tensor) -> Any:
    """Return the quickest of three ways to the same operator that will do for this call."""
    if needs_registered_op(*tensors):
        return registered
    return functional.apply if torch._C._are_functorch_transforms_active() else short.apply


def needs_registered_op(*tensors: Tensor) -> bool:
    """Whether a call must go through the dispatcher: while compiling, and for tensor subclasses."""
    return torch.compiler.is_compiling() or any(
        type(t) is not Tensor and type(t) is not torch.nn.Parameter for t in tensors
    )


def entmax(
    scores: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *, backend: str = "auto"
) -> Tensor:
    """Turn scores into probabilities, many of them exactly zero.

    Computes in float32 (float64 for float64 scores) whatever the dtype; a row's result depends on
    that row alone and is the same for any number of threads. Gradients of any order exist for
    ``scores`` and ``alpha``; those above the first take a slower path in plain PyTorch.

    Args:
        scores: ``(..., n)``; ``-inf`` marks a masked entry.
        alpha: At least 1. 1 is softmax, 2 is sparsemax. A tensor must broadcast against
            ``scores`` and have size 1 along ``dim``; it receives gradients.
        dim: Dimension to normalize.
        backend: ``"auto"`` follows the device of ``scores``; ``"native"`` is the compiled CPU
            kernel, ``"plain"`` PyTorch alone.

    Returns:
        Same shape and dtype as ``scores``. Fully masked rows are all zero, with zero gradients;
        a row that holds NaN or ``+inf`` is all NaN.

    Example:
        >>> entmax(torch.tensor([2.0, 0.0, 0.0]), alpha=2.0)
        tensor([1., 0., 0.])
        >>> entmax(torch.tensor([1.0, 0.5, -1.0]), alpha=1.5)
        tensor([0.6740, 0.3260, 0.0000])
    """
    return entmax_from(scores, alpha, dim, lowest=1.0, backend=backend)


def entmax_from(
    scores: Tensor, alpha: float | Tensor, dim: int, *, lowest: float, backend: str = "auto"
) -> Tensor:
    """``entmax`` for every alpha from ``lowest`` up; below 1 all probabilities are positive."""
    dim = check_scores(scores, dim)
    check_backend(backend)
    alpha = as_alpha(alpha, scores, dim, lowest=lowest)
    if scores.dim() == 0:
        return entmax_from(scores.reshape(1), alpha, 0, lowest=lowest, backend=backend).reshape(())
    is_last = dim == scores.dim() - 1
    if not is_last:
        scores = scores.movedim(dim, -1)
        alpha = alpha.movedim(dim, -1) if alpha.dim() else alpha
    apply = choose_route(_ShortEntmax, _Entmax, _entmax_op, scores, alpha)
    weights: Tensor = apply(scores, alpha, lowest, backend)
    return weights if is_last else weights.movedim(-1, dim)
