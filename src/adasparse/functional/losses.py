"""The Fenchel-Young loss of entmax, which is cross entropy at alpha = 1."""

import torch
from torch import Tensor

from adasparse.functional.arguments import as_alpha, check_dense, check_scores
from adasparse.functional.backends import check_backend
from adasparse.functional.loss_operators import row_losses
from adasparse.kernels import LossProblem

REDUCTIONS = ("mean", "none", "sum")


def _check_weight(weight: Tensor, scores: Tensor, n: int) -> None:
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be a tensor ({n},) or None; got {type(weight).__name__}.")
    if weight.is_complex() or weight.dtype == torch.bool:
        raise TypeError(f"weight must hold real numbers; got {weight.dtype}.")
    check_dense("weight", weight)
    if weight.device != scores.device:
        raise ValueError(
            f"weight must be on the device of scores, {scores.device}; got {weight.device}."
        )
    if weight.shape != (n,):
        raise ValueError(f"weight must have shape ({n},); got {tuple(weight.shape)}.")


def _check_options(ignore_index: int, label_smoothing: float, reduction: str) -> None:
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be an integer; got {type(ignore_index).__name__}.")
    if isinstance(label_smoothing, bool) or not isinstance(label_smoothing, (int, float)):
        raise TypeError(f"label_smoothing must be a number; got {type(label_smoothing).__name__}.")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be from 0 to 1; got {label_smoothing}.")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {list(REDUCTIONS)}; got {reduction!r}.")


def _check_target(scores: Tensor, target: Tensor, dim: int) -> bool:
    """Raise unless the target fits the scores; return whether it holds distributions."""
    if not isinstance(target, Tensor):
        raise TypeError(
            "target must be a tensor of classes, in integers, or of probabilities; "
            f"got {type(target).__name__}."
        )
    if target.device != scores.device:
        raise ValueError(
            f"target must be on the device of scores, {scores.device}; got {target.device}."
        )
    check_dense("target", target)
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


def _mean(rows: Tensor, problem: LossProblem) -> Tensor:
    """Average as cross entropy does, over the weights of the target classes; 0 over nothing."""
    valid = problem.valid()
    if valid is None:
        return rows.sum() / max(rows.numel(), 1)
    if problem.weight is None:
        total = valid.sum()
    else:
        assert problem.index is not None
        weight = problem.weight.to(rows.dtype)
        total = torch.where(valid, weight[torch.where(valid, problem.index, 0)], 0.0).sum()
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
    """Fenchel-Young loss whose gradient is ``entmax(scores, alpha)`` minus the target.

    At alpha = 1 it is ``torch.nn.functional.cross_entropy``, argument by argument. Above, it is
    exactly zero, with zero gradient, once the target's score leads the others by enough
    (``1 / (alpha - 1)``). One pass over the scores forward and one backward; nothing of their size
    is allocated but the gradient.

    A target of probabilities q costs the average over q of the losses of the classes. This is the
    Fenchel-Young loss minus a constant, the entropy of q, as cross entropy has it at alpha = 1.

    Args:
        scores: ``(c,)``, ``(b, c)`` or ``(b, c, ...)`` for c classes; ``-inf`` marks an impossible
            class.
        target: Classes, in the shape of ``scores`` without c; or probabilities, in the shape of
            ``scores``.
        alpha: At least 1. A tensor must broadcast against ``scores`` with size 1 for c; it
            receives gradients.
        ignore_index: Target of rows that are ignored, whatever they hold.
        reduction: ``"mean"`` over what is not ignored (0 if all is), ``"sum"``, or ``"none"``.
        label_smoothing: Fraction of the target, from 0 to 1, that is spread over all classes.
        weight: Weight of each class, ``(c,)``.
        backend: As for ``entmax``.

    Returns:
        A scalar, or the shape of ``scores`` without c; in the dtype of ``scores``, or float32 for
        half precision under autocast. ``inf`` where the target's score is ``-inf``.

    References:
        - Blondel, Martins and Niculae, [Learning with Fenchel-Young
          Losses](https://arxiv.org/abs/1901.02324), 2020.
        - Peters, Niculae and Martins, [Sparse Sequence-to-Sequence
          Models](https://arxiv.org/abs/1905.05702), 2019.

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
    backend = check_backend(backend)
    _check_options(ignore_index, label_smoothing, reduction)
    n = scores.shape[dim]
    if weight is not None:
        _check_weight(weight, scores, n)
    has_probabilities = _check_target(scores, target, dim)
    alpha = as_alpha(alpha, scores, dim)

    rows = scores.movedim(dim, -1)
    batch = rows.shape[:-1]
    if alpha.numel() == 1:
        alpha = alpha.reshape(())
    else:
        alpha = alpha.movedim(dim, -1).expand(*batch, 1).reshape(-1, 1)
    problem = LossProblem(
        scores=rows.reshape(-1, n),
        alpha=alpha,
        index=None if has_probabilities else target.reshape(-1).long(),
        probability=target.movedim(dim, -1).reshape(-1, n) if has_probabilities else None,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=float(label_smoothing),
    )
    loss = row_losses(problem, backend=backend)

    if reduction == "sum":
        loss = loss.sum()
    elif reduction == "mean":
        loss = _mean(loss, problem)
    else:
        loss = loss.reshape(batch)
    device = scores.device.type
    # Every CPU has autocast, and torch 2.6 does not trace the question.
    has_autocast = device == "cpu" or torch.amp.is_autocast_available(device)
    is_mixed = has_autocast and torch.is_autocast_enabled(device)
    return loss if is_mixed else loss.to(scores.dtype)
