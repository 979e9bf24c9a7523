"""The Fenchel-Young loss of entmax, which is cross entropy at alpha = 1."""

from typing import Any

import torch
from torch import Tensor

from adasparse.functional.entmax import (
    _Entmax,
    _entmax_op,
    _ShortEntmax,
    alpha_rows,
    as_alpha,
    check_alpha_values,
    check_backend,
    check_scores,
    choose_kernels,
    choose_route,
    sum_to_alpha,
)
from adasparse.kernels import plain
from adasparse.kernels.target import Target

REDUCTIONS = ("mean", "none", "sum")


def _check_index(index: Tensor, n: int, ignore_index: int) -> None:
    """Raise if a class in CPU memory does not exist; elsewhere the kernel itself would."""
    if index.device.type != "cpu":
        return
    bad = ((index < 0) | (index >= n)) & (index != ignore_index)
    if bool(bad.any()):
        raise IndexError(
            f"target must hold classes from 0 to {n - 1} or ignore_index {ignore_index}; "
            f"got {int(index[bad][0])}."
        )


def _target(
    scores: Tensor,
    index: Tensor | None,
    probability: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
) -> Target:
    """Bring what a kernel reads into one dtype and contiguous memory."""
    return Target(
        index=None if index is None else index.contiguous(),
        probability=None if probability is None else probability.to(scores.dtype).contiguous(),
        weight=None if weight is None else weight.to(scores.dtype).contiguous(),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


def _forward(scores: Tensor, alpha: Tensor, target: Target, backend: str) -> tuple[Tensor, Tensor]:
    check_alpha_values(alpha, 1.0)
    if target.index is not None:
        _check_index(target.index, scores.shape[-1], target.ignore_index)
    kernels = choose_kernels(scores.device, backend)
    loss, state = kernels.loss_forward(
        scores.contiguous(), alpha_rows(alpha, scores.shape[:-1]), target
    )
    return loss.to(_row_dtype(scores)), state


def _row_dtype(scores: Tensor) -> torch.dtype:
    """Losses of half-precision rows stay in float32 until they are reduced."""
    return torch.float64 if scores.dtype == torch.float64 else torch.float32


def _backward(
    scores: Tensor,
    state: Tensor,
    grad: Tensor,
    alpha: Tensor,
    target: Target,
    with_alpha: bool,
    backend: str,
) -> tuple[Tensor, Tensor | None]:
    kernels = choose_kernels(scores.device, backend)
    grad_scores, grad_alpha = kernels.loss_backward(
        scores.contiguous(),
        state,
        grad.double().contiguous(),
        alpha_rows(alpha, scores.shape[:-1]),
        target,
        with_alpha=with_alpha,
    )
    if with_alpha:
        grad_alpha = sum_to_alpha(grad_alpha, alpha, scores.shape[:-1])
    return grad_scores, grad_alpha


class _ShortLoss(torch.autograd.Function):
    """The loss of each row of ``(rows, n)``; alpha is a scalar or ``(rows, 1)``."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = _Loss.forward(*inputs)
        _Loss.setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        scores, alpha, index, probability, weight, state = ctx.saved_tensors
        target = _target(scores, index, probability, weight, ctx.ignore_index, ctx.label_smoothing)
        with_alpha = ctx.needs_input_grad[1]
        if torch.is_grad_enabled():
            weights = choose_route(_ShortEntmax, _Entmax, _entmax_op, scores, alpha)(
                scores, alpha, 1.0, ctx.backend
            )
            wide = alpha.double().expand(scores.shape[0], 1).reshape(-1)
            grad_scores, by_row = plain.loss_gradient(weights, grad, wide, target)
            grad_alpha = sum_to_alpha(by_row, alpha, scores.shape[:-1]) if with_alpha else None
        else:
            grad_scores, grad_alpha = _backward(
                scores, state, grad, alpha, target, with_alpha, ctx.backend
            )
        return grad_scores, grad_alpha, *[None] * 6


class _Loss(_ShortLoss):
    """The same for torch.func; PyTorch takes longer over this form."""

    @staticmethod
    def forward(
        scores: Tensor,
        alpha: Tensor,
        index: Tensor | None,
        probability: Tensor | None,
        weight: Tensor | None,
        ignore_index: int,
        label_smoothing: float,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        target = _target(scores, index, probability, weight, ignore_index, label_smoothing)
        return _forward(scores, alpha, target, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.ignore_index, ctx.label_smoothing, ctx.backend = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, output[1])

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        scores: Tensor,
        alpha: Tensor,
        index: Tensor | None,
        probability: Tensor | None,
        weight: Tensor | None,
        *options: Any,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        if in_dims[4] is not None:
            raise ValueError("vmap over the class weights of entmax_loss is not supported.")
        size, rows = info.batch_size, scores.shape[0 if in_dims[0] != 0 else 1]

        def flat(x: Tensor | None, dim: int | None) -> Tensor | None:
            if x is None:
                return None
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.reshape(size * rows, *x.shape[2:])

        if in_dims[1] is not None or alpha.dim():
            per_row = alpha.movedim(in_dims[1], 0) if in_dims[1] is not None else alpha[None]
            alpha = per_row.reshape(per_row.shape[0], -1).expand(size, rows).reshape(-1, 1)
        loss, state = _Loss.apply(
            flat(scores, in_dims[0]),
            alpha,
            flat(index, in_dims[2]),
            flat(probability, in_dims[3]),
            weight,
            *options,
        )
        return (loss.reshape(size, rows), state.reshape(size, rows, -1)), (0, 0)


@torch.library.custom_op("adasparse::entmax_loss", mutates_args=())
def _loss_op(
    scores: Tensor,
    alpha: Tensor,
    index: Tensor | None,
    probability: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    target = _target(scores, index, probability, weight, ignore_index, label_smoothing)
    return _forward(scores, alpha, target, backend)


@_loss_op.register_fake
def _(
    scores: Tensor,
    alpha: Tensor,
    index: Tensor | None,
    probability: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    rows = scores.shape[0]
    is_native = choose_kernels(scores.device, backend) is not plain
    loss = scores.new_empty(rows, dtype=_row_dtype(scores))
    return loss, scores.new_empty(rows, 3 if is_native else 0, dtype=torch.float64)


@torch.library.custom_op("adasparse::entmax_loss_backward", mutates_args=())
def _loss_backward_op(
    scores: Tensor,
    state: Tensor,
    grad: Tensor,
    alpha: Tensor,
    index: Tensor | None,
    probability: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    with_alpha: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    target = _target(scores, index, probability, weight, ignore_index, label_smoothing)
    grad_scores, grad_alpha = _backward(scores, state, grad, alpha, target, with_alpha, backend)
    return grad_scores, torch.zeros_like(alpha) if grad_alpha is None else grad_alpha


@_loss_backward_op.register_fake
def _(
    scores: Tensor,
    state: Tensor,
    grad: Tensor,
    alpha: Tensor,
    index: Tensor | None,
    probability: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    with_alpha: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores, memory_format=torch.contiguous_format), torch.empty_like(alpha)


def _op_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    scores, alpha, *tensors, state = ctx.saved_tensors
    with_alpha = ctx.needs_input_grad[1]
    grad_scores, grad_alpha = _loss_backward_op(
        scores,
        state,
        grad,
        alpha,
        *tensors,
        ctx.ignore_index,
        ctx.label_smoothing,
        with_alpha,
        ctx.backend,
    )
    return grad_scores, grad_alpha if with_alpha else None, *[None] * 6


_loss_op.register_autograd(_op_backward, setup_context=_Loss.setup_context)


def _check_target(scores: Tensor, target: Tensor, dim: int) -> bool:
    """Raise unless the target fits the scores; return whether it holds distributions."""
    if target.device != scores.device:
        raise ValueError(
            f"target must be on the device of scores, {scores.device}; got {target.device}."
        )
    if target.is_floating_point():
        if target.shape != scores.shape:
            raise ValueError(
                f"a target of probabilities must have the shape of scores, {tuple(scores.shape)}; "
                f"got {tuple(target.shape)}."
            )
        if target.requires_grad:
            raise ValueError("target gets no gradient; detach() it first.")
        return True
    if target.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8):
        raise TypeError(f"target must hold integers or probabilities; got {target.dtype}.")
    expected = scores.shape[:dim] + scores.shape[dim + 1 :]
    if target.shape != expected:
        raise ValueError(
            f"a target of classes must have shape {tuple(expected)}, that of scores "
            f"{tuple(scores.shape)} without dim {dim}; got {tuple(target.shape)}."
        )
    return False


def _mean(rows: Tensor, target: Target) -> Tensor:
    """Average as cross entropy does, over the weights of the target classes; 0 over nothing."""
    valid = target.valid()
    if valid is None:
        return rows.sum() / max(rows.numel(), 1)
    if target.weight is None:
        total = valid.sum()
    else:
        assert target.index is not None
        total = torch.where(valid, target.weight[torch.where(valid, target.index, 0)], 0.0).sum()
    return rows.sum() / torch.where(total == 0, 1, total)


def entmax_loss(
    scores: Tensor,
    target: Tensor,
    alpha: float | Tensor = 1.5,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    weight: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Fenchel-Young loss whose gradient is ``entmax(scores, alpha)`` less the target.

    At alpha = 1 it is ``torch.nn.functional.cross_entropy``, argument by argument. Above, it is
    exactly zero, with zero gradient, once the target's score leads the others by enough
    (``1 / (alpha - 1)``). One pass over the scores forward and one backward; beside the gradient
    nothing of their size is made.

    A target of probabilities q costs the average over q of the losses of the classes. This is the
    Fenchel-Young loss less a constant, the entropy of q, and what cross entropy does at alpha = 1.

    Args:
        scores: ``(c,)``, ``(b, c)`` or ``(b, c, ...)`` for c classes; ``-inf`` marks a class that
            cannot be.
        target: Classes, in the shape of ``scores`` without c; or probabilities, in the shape of
            ``scores``.
        alpha: At least 1. A tensor must broadcast against ``scores`` with size 1 for c; it
            receives gradients.
        ignore_index: Rows with this target are left out, whatever they hold.
        reduction: ``"mean"`` over what is not ignored (0 if all is), ``"sum"``, or ``"none"``.
        label_smoothing: From 0 to 1, the share of the target spread over all classes.
        weight: ``(c,)``, how much each class counts.
        backend: As for ``entmax``.

    Returns:
        A scalar, or the shape of ``scores`` without c; in the dtype of ``scores``, or float32 for
        half precision under autocast. ``inf`` where the target's score is ``-inf``.

    Example:
        >>> scores = torch.tensor([[2.0, 0.5, -1.0], [0.1, 0.2, 0.3]])
        >>> entmax_loss(scores, torch.tensor([0, 2]), alpha=1.5)
        tensor(0.2391)
        >>> entmax_loss(scores, torch.tensor([0, 2]), alpha=1.5, reduction="none")
        tensor([0.0088, 0.4693])
    """
    dim = check_scores(scores, 1 if isinstance(scores, Tensor) and scores.dim() > 1 else 0)
    if scores.dim() == 0 or scores.shape[dim] == 0:
        raise ValueError(f"scores must have at least one class; got shape {tuple(scores.shape)}.")
    check_backend(backend)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {list(REDUCTIONS)}; got {reduction!r}.")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be from 0 to 1; got {label_smoothing}.")
    n = scores.shape[dim]
    if weight is not None and weight.shape != (n,):
        raise ValueError(f"weight must have shape ({n},); got {tuple(weight.shape)}.")
    has_probabilities = _check_target(scores, target, dim)
    alpha = as_alpha(alpha, scores, dim)

    rows = scores.movedim(dim, -1)
    batch = rows.shape[:-1]
    if alpha.numel() == 1:
        alpha = alpha.reshape(())
    else:
        alpha = alpha.movedim(dim, -1).expand(*batch, 1).reshape(-1, 1)
    tensors = [rows.reshape(-1, n), alpha]
    index = None if has_probabilities else target.reshape(-1).long()
    probability = target.movedim(dim, -1).reshape(-1, n) if has_probabilities else None
    apply = choose_route(_ShortLoss, _Loss, _loss_op, scores, alpha)
    options = (ignore_index, float(label_smoothing), backend)
    loss, _ = apply(*tensors, index, probability, weight, *options)

    if reduction == "sum":
        loss = loss.sum()
    elif reduction == "mean":
        loss = _mean(loss, Target(index=index, weight=weight, ignore_index=ignore_index))
    else:
        loss = loss.reshape(batch)
    is_mixed = torch.is_autocast_enabled(scores.device.type)
    result: Tensor = loss if is_mixed else loss.to(scores.dtype)
    return result
