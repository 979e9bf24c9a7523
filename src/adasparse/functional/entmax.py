"""The entmax operator: probabilities of which many are exactly zero."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from adasparse.functional.arguments import (
    alpha_rows,
    as_alpha,
    bound_of,
    check_alpha_values,
    check_scores,
    rows_of,
    sum_to_alpha,
)
from adasparse.functional.backends import (
    check_backend,
    choose_kernels,
    differentiable_kernels,
    is_batched,
    is_transformed,
    needs_gradient,
    needs_registered_op,
    register_loop,
)


def _forward(scores: Tensor, alpha: Tensor, lowest: float, backend: str) -> Tensor:
    check_alpha_values(alpha, lowest)
    kernels = choose_kernels(backend, scores)
    rows = rows_of(scores)
    if rows.numel() == 0:
        return torch.zeros_like(scores, memory_format=torch.contiguous_format)
    weights: Tensor = kernels.entmax_forward(rows, alpha_rows(alpha, scores.shape[:-1]))
    return weights if scores.dim() == 2 else weights.view(scores.shape)


def _backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, with_alpha: bool, backend: str
) -> tuple[Tensor, Tensor | None]:
    if weights.numel() == 0:
        return torch.zeros_like(weights), torch.zeros_like(alpha) if with_alpha else None
    batch = weights.shape[:-1]
    kernels = choose_kernels(backend, weights)
    grad_scores, grad_alpha = kernels.entmax_backward(
        rows_of(weights),
        rows_of(grad if grad.dtype == weights.dtype else grad.to(weights.dtype)),
        alpha_rows(alpha, batch),
        with_alpha=with_alpha,
    )
    if grad_alpha is not None:
        grad_alpha = sum_to_alpha(grad_alpha, alpha, batch)
    return grad_scores if weights.dim() == 2 else grad_scores.view(weights.shape), grad_alpha


def _differentiable_backward(weights: Tensor, grad: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The backward pass in PyTorch operations, for gradients of gradients."""
    batch = weights.shape[:-1]
    rows = math.prod(batch), weights.shape[-1]
    # detach() would cut the second derivative with respect to alpha, so no alpha_rows here
    wide = alpha.double().expand(*batch, 1).reshape(-1)
    grad_scores, grad_alpha = differentiable_kernels.entmax_backward(
        weights.reshape(rows),
        grad.reshape(rows),
        wide,
        with_alpha=True,
    )
    assert grad_alpha is not None
    return grad_scores.reshape(weights.shape), sum_to_alpha(grad_alpha, alpha, batch)


def _tangent(
    weights: Tensor, tangent: Tensor | None, alpha: Tensor, alpha_tangent: Tensor | None
) -> Tensor:
    """The directional derivative in PyTorch operations, for forward-mode differentiation."""
    batch, n = weights.shape[:-1], weights.shape[-1]
    if weights.numel() == 0:
        return torch.zeros_like(weights)
    if tangent is None:
        tangent = torch.zeros_like(weights)
    if alpha_tangent is not None:
        alpha_tangent = alpha_tangent.double().expand(*batch, 1).reshape(-1, 1)
    moved = differentiable_kernels.entmax_tangent(
        weights.reshape(-1, n),
        tangent.reshape(-1, n),
        alpha.double().expand(*batch, 1).reshape(-1),
        alpha_tangent,
    )
    return moved.reshape(weights.shape)


class _EagerEntmax(torch.autograd.Function):
    """entmax over the last dimension, in the form that costs an eager call the least."""

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
        elif is_batched(grad):
            gradients = _entmax_backward_op(weights, grad, alpha, with_alpha, ctx.backend)
        else:
            gradients = _backward(weights, grad, alpha, with_alpha, ctx.backend)
        return gradients[0], gradients[1] if with_alpha else None, None, None


class _FunctorchEntmax(_EagerEntmax):
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
        ctx.save_for_forward(output, alpha)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, alpha_tangent: Tensor | None, *_: None) -> Tensor:
        weights, alpha = ctx.saved_tensors
        return _tangent(weights, tangent, alpha, alpha_tangent)

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
        return _FunctorchEntmax.apply(scores, alpha, lowest, backend), 0


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
def _entmax_op(
    scores: Tensor, alpha: Tensor, lowest: float, backend: str, highest: float | None = None
) -> Tensor:
    return _forward(scores, alpha, lowest, backend)


@_entmax_op.register_fake
def _(
    scores: Tensor, alpha: Tensor, lowest: float, backend: str, highest: float | None = None
) -> Tensor:
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


register_loop(_entmax_backward_op)


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weights, alpha = ctx.saved_tensors
    with_alpha = ctx.needs_input_grad[1]
    grad_scores, grad_alpha = _entmax_backward_op(weights, grad, alpha, with_alpha, ctx.backend)
    return grad_scores, grad_alpha if with_alpha else None, None, None, None


def _op_setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, alpha, _, ctx.backend, _ = inputs
    ctx.save_for_backward(output, alpha)


_entmax_op.register_autograd(_op_backward, setup_context=_op_setup_context)


def entmax_decomposition(
    scores: Tensor, alpha: Tensor, lowest: float, backend: str, highest: float | None = None
) -> Tensor:
    """The registered operator in PyTorch operations, a fixed number of them."""
    known = differentiable_kernels.known_alpha(alpha)
    if known is not None and not 1 <= known < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite to be exported; got {known}.")
    return differentiable_kernels.entmax_unrolled(scores, alpha, highest)


def entmax(
    scores: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *, backend: str = "auto"
) -> Tensor:
    """Turn scores into probabilities, many of them exactly zero.

    Computes in float32 (float64 for float64 scores, and on CPU for alpha above 2) whatever the
    dtype, and is exact for every alpha, however large; gradients may then exceed the range of the
    dtype, and are infinite. The result of a row depends
    on that row alone and is the same for any number of threads. Gradients of any order exist for
    ``scores`` and ``alpha``; those above the first take a slower path in PyTorch alone.

    Args:
        scores: ``(..., n)``; ``-inf`` marks a masked entry.
        alpha: At least 1 and finite. 1 is softmax, 2 is sparsemax. A tensor must broadcast against
            ``scores`` and have size 1 along ``dim``; it receives gradients.
        dim: Dimension to normalize.
        backend: ``"auto"`` follows the device of ``scores``; ``"cpu"`` is the compiled kernel for
            CPUs, ``"triton"`` the one for GPUs, ``"torch"`` PyTorch alone.

    Returns:
        Same shape and dtype as ``scores``. Fully masked rows are all zero, with zero gradients;
        a row that holds NaN or ``+inf`` is all NaN.

    References:
        - Peters, Niculae and Martins, [Sparse Sequence-to-Sequence
          Models](https://arxiv.org/abs/1905.05702), 2019: entmax.
        - Correia, Niculae and Martins, [Adaptively Sparse
          Transformers](https://arxiv.org/abs/1909.00015), 2019: the gradient with respect to
          ``alpha``.

    Example:
        >>> entmax(torch.tensor([2.0, 0.0, 0.0]), alpha=2.0)
        tensor([1., 0., 0.])
        >>> entmax(torch.tensor([1.0, 0.5, -1.0]), alpha=1.5)
        tensor([0.6740, 0.3260, 0.0000])
    """
    return entmax_from(scores, alpha, dim, lowest=1.0, backend=check_backend(backend))


def sparsemax(scores: Tensor, dim: int = -1) -> Tensor:
    """Project scores onto the probability simplex: ``entmax`` with an alpha of 2.

    Args:
        scores: ``(..., n)``; ``-inf`` marks a masked entry.
        dim: Dimension to normalize.

    Returns:
        Same shape and dtype as ``scores``. Fully masked rows are all zero.

    References:
        - Martins and Astudillo, [From Softmax to Sparsemax](https://arxiv.org/abs/1602.02068),
          2016.

    Example:
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    return entmax_from(scores, 2.0, dim, lowest=1.0)


def _is_steep(scores: Tensor, alpha: Tensor) -> bool:
    """Whether alpha is above 2, as far as values can be read without stalling a device."""
    if not scores.is_cpu or not alpha.is_cpu or not alpha.numel():
        return False
    return (alpha.item() if alpha.numel() == 1 else alpha.max().item()) > 2


def _choose_route(
    scores: Tensor, alpha: Tensor, highest: float | None = None
) -> Callable[..., Tensor]:
    """Return the fastest form of the operator that supports this call."""
    if needs_registered_op(scores, alpha):
        is_onnx = torch.onnx.is_in_onnx_export()
        return partial(entmax_decomposition if is_onnx else _entmax_op, highest=highest)
    if is_transformed():
        return _FunctorchEntmax.apply
    return _eager_route if needs_gradient(scores, alpha) else _forward


_eager_route: Callable[..., Tensor] = _EagerEntmax.apply


def entmax_from(
    scores: Tensor,
    alpha: float | Tensor,
    dim: int,
    *,
    lowest: float,
    highest: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """``entmax`` for every alpha from ``lowest`` up; below 1 all probabilities are positive.

    Args:
        scores: ``(..., n)``.
        alpha: A number or a tensor.
        dim: Dimension to normalize.
        lowest: Smallest alpha that is accepted.
        highest: Bound of alpha for exported graphs, where its values are not known; that noted by
            ``with_bound`` if None.
        backend: A name that ``check_backend`` returned.
    """
    highest = bound_of(alpha) if highest is None else highest
    dim = check_scores(scores, dim)
    alpha = as_alpha(alpha, scores, dim, lowest=lowest)
    if scores.dim() == 0:
        row = scores.reshape(1)
        weights = entmax_from(row, alpha, 0, lowest=lowest, highest=highest, backend=backend)
        return weights.reshape(())
    route = _choose_route(scores, alpha, highest)
    if route is _eager_route and scores.dtype != torch.float64 and _is_steep(scores, alpha):
        # Gradients are powers of the weights, too high to take them from rounded ones.
        wide = entmax_from(scores.double(), alpha, dim, lowest=lowest, backend=backend)
        return wide.to(scores.dtype)
    is_last = dim == scores.dim() - 1
    if not is_last:
        scores = scores.movedim(dim, -1)
        alpha = alpha.movedim(dim, -1) if alpha.dim() else alpha
    weights = route(scores, alpha, lowest, backend)
    return weights if is_last else weights.movedim(-1, dim)
