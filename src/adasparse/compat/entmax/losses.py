"""Fenchel-Young losses: ``entmax.losses`` of the ``entmax`` package."""

from typing import Any

import torch
from torch import Tensor, nn

from adasparse.compat.entmax.arguments import can_branch, check_hint, per_row, support_size
from adasparse.compat.entmax.root_finding import normmax_and_conjugate
from adasparse.functional import entmax, entmax_loss
from adasparse.functional.arguments import as_alpha, check_scores
from adasparse.functional.loss_operators import row_losses
from adasparse.kernels import LossProblem

_IGNORED = -100  # the target of a row without a loss
_REDUCTIONS = ("elementwise_mean", "mean", "none", "sum")


def _check_rows(X: Tensor, target: Tensor) -> None:
    check_scores(X, -1)
    if X.dim() != 2 or target.shape != X.shape[:1]:
        raise ValueError(
            "X (n, classes) and target (n,) must agree on n; "
            f"got {tuple(X.shape)} and {tuple(target.shape)}."
        )
    if target.dtype != torch.int64:
        raise TypeError(f"target must hold class indices in int64; got {target.dtype}.")


def _as_column(alpha: float | Tensor) -> float | Tensor:
    """One alpha as it is, one per row as ``(n, 1)``."""
    if not isinstance(alpha, Tensor):
        return alpha
    alpha = alpha if alpha.is_floating_point() else alpha.double()
    return alpha.unsqueeze(1) if alpha.dim() == 1 else alpha


def _is_below_1(alpha: float | Tensor) -> bool:
    if not isinstance(alpha, Tensor):
        return alpha < 1
    return can_branch(alpha) and bool((alpha < 1).any())


def _loss(X: Tensor, target: Tensor, alpha: float | Tensor) -> Tensor:
    _check_rows(X, target)
    if not _is_below_1(alpha):
        return entmax_loss(X, target, alpha, ignore_index=_IGNORED, reduction="none")
    alpha = as_alpha(alpha, X, 1, lowest=0.0)
    if not bool((alpha > 0).all()):
        raise ValueError(f"alpha must be above 0; got {alpha.min().item()}.")
    alpha = alpha if alpha.dim() == 0 else alpha.expand(X.shape[0], 1)
    problem = LossProblem(scores=X, alpha=alpha, index=target, ignore_index=_IGNORED)
    return row_losses(problem, lowest=0.0).to(X.dtype)


def _loss_and_support(
    X: Tensor, target: Tensor, alpha: float, k: int | None, return_support_size: bool
) -> Any:
    check_hint("k", k)
    loss = _loss(X, target, alpha)
    if not return_support_size:
        return loss
    return loss, support_size(entmax(X.detach(), alpha), -1)


def sparsemax_loss(
    X: Tensor, target: Tensor, k: int | None = None, return_support_size: bool = False
) -> Any:
    """Return the sparsemax loss of every row.

    Args:
        X: Scores ``(n, classes)``; ``-inf`` marks a masked entry.
        target: Class indices ``(n,)``; -100 marks a row to leave out.
        k: Without effect; the ``entmax`` package sorts the ``k`` largest scores first.
        return_support_size: Return the support size as well.

    Returns:
        ``(n,)`` in the dtype of ``X``, with 0 for rows left out. With ``return_support_size`` a
        tuple of that and the count of nonzero probabilities, ``(n, 1)``.

    Example:
        >>> import torch
        >>> sparsemax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor([0.5625])
    """
    return _loss_and_support(X, target, 2.0, k, return_support_size)


def entmax15_loss(
    X: Tensor, target: Tensor, k: int | None = None, return_support_size: bool = False
) -> Any:
    """Return the 1.5-entmax loss of every row.

    Args:
        X: Scores ``(n, classes)``; ``-inf`` marks a masked entry.
        target: Class indices ``(n,)``; -100 marks a row to leave out.
        k: Without effect; the ``entmax`` package sorts the ``k`` largest scores first.
        return_support_size: Return the support size as well.

    Returns:
        ``(n,)`` in the dtype of ``X``, with 0 for rows left out. With ``return_support_size`` a
        tuple of that and the count of nonzero probabilities, ``(n, 1)``.
    """
    return _loss_and_support(X, target, 1.5, k, return_support_size)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int | None = 50) -> Tensor:
    """Return what ``sparsemax_loss`` returns; ``n_iter`` is without effect."""
    check_hint("n_iter", n_iter)
    return _loss(X, target, 2.0)


def entmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int | None = 50
) -> Tensor:
    """Return the alpha-entmax loss of every row.

    Args:
        X: Scores ``(n, classes)``; ``-inf`` marks a masked entry.
        target: Class indices ``(n,)``; -100 marks a row to leave out.
        alpha: Above 0. 1 is cross entropy, 2 the sparsemax loss. A tensor has one value or
            ``(n,)`` or ``(n, 1)``; it receives gradients.
        n_iter: Without effect: the result is exact to the precision of ``X``.

    Returns:
        ``(n,)`` in the dtype of ``X``, with 0 for rows left out.
    """
    check_hint("n_iter", n_iter)
    return _loss(X, target, _as_column(alpha))


def normmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int | None = 50
) -> Tensor:
    """Return the Fenchel-Young loss of ``normmax_bisect`` for every row.

    Args:
        X: Scores ``(n, classes)``; ``-inf`` marks a masked entry.
        target: Class indices ``(n,)``; -100 marks a row to leave out.
        alpha: Order of the norm, see ``normmax_bisect``. A tensor has one value or ``(n,)`` or
            ``(n, 1)``; it receives no gradients.
        n_iter: Without effect: the result is exact to the precision of ``X``.

    Returns:
        ``(n,)`` in the dtype of ``X``, with 0 for rows left out.
    """
    check_hint("n_iter", n_iter)
    _check_rows(X, target)
    ignored = target == _IGNORED
    _, conjugate = normmax_and_conjugate(X, per_row("alpha", _as_column(alpha), X, 1))
    chosen = X.gather(1, target.masked_fill(ignored, 0).unsqueeze(1)).to(conjugate)
    loss: Tensor = (conjugate - chosen).squeeze(1).masked_fill(ignored, 0)
    return loss.to(X.dtype)


class SparsemaxLossFunction:
    """For code that calls ``SparsemaxLossFunction.apply``."""

    apply = staticmethod(sparsemax_loss)


class SparsemaxBisectLossFunction:
    """For code that calls ``SparsemaxBisectLossFunction.apply``."""

    apply = staticmethod(sparsemax_bisect_loss)


class Entmax15LossFunction:
    """For code that calls ``Entmax15LossFunction.apply``."""

    apply = staticmethod(entmax15_loss)


class EntmaxBisectLossFunction:
    """For code that calls ``EntmaxBisectLossFunction.apply``."""

    apply = staticmethod(entmax_bisect_loss)


class NormmaxBisectLossFunction:
    """For code that calls ``NormmaxBisectLossFunction.apply``."""

    apply = staticmethod(normmax_bisect_loss)


class _GenericLoss(nn.Module):
    """Base of the loss modules: ignored rows, and the reduction."""

    def __init__(self, ignore_index: int, reduction: str) -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction must be one of {_REDUCTIONS}; got {reduction!r}.")
        self.ignore_index = ignore_index
        self.reduction = reduction

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """Return the loss of every row of ``X`` ``(n, classes)``, with 0 for targets of -100."""
        raise NotImplementedError

    def forward(self, X: Tensor, target: Tensor) -> Any:
        """Return the reduced loss of ``X`` ``(n, classes)`` against ``target`` ``(n,)``."""
        ignored = target == self.ignore_index
        loss = self.loss(X, target.masked_fill(ignored, _IGNORED))
        if isinstance(loss, tuple):
            return self._reduce(loss[0], ignored), loss[1]
        return self._reduce(loss, ignored)

    def _reduce(self, loss: Tensor, ignored: Tensor) -> Tensor:
        if self.reduction == "none":
            return loss
        return loss.sum() if self.reduction == "sum" else loss.sum() / (~ignored).sum().clamp(min=1)


class SparsemaxLoss(_GenericLoss):
    """Module form of ``sparsemax_loss``.

    Args:
        k: Without effect.
        ignore_index: Target of the rows to leave out of the sum and of the mean; any integer.
        reduction: ``"elementwise_mean"`` or ``"mean"``, ``"sum"`` or ``"none"``.
        return_support_size: Return the support size ``(n, 1)`` as well.
    """

    def __init__(
        self,
        k: int | None = None,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
        return_support_size: bool = False,
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k = k
        self.return_support_size = return_support_size

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See ``sparsemax_loss``."""
        return sparsemax_loss(X, target, self.k, self.return_support_size)


class Entmax15Loss(_GenericLoss):
    """Module form of ``entmax15_loss``.

    Args:
        k: Without effect.
        ignore_index: Target of the rows to leave out of the sum and of the mean; any integer.
        reduction: ``"elementwise_mean"`` or ``"mean"``, ``"sum"`` or ``"none"``.
        return_support_size: Return the support size ``(n, 1)`` as well.
    """

    def __init__(
        self,
        k: int | None = 100,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
        return_support_size: bool = False,
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k = k
        self.return_support_size = return_support_size

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See ``entmax15_loss``."""
        return entmax15_loss(X, target, self.k, self.return_support_size)


class SparsemaxBisectLoss(_GenericLoss):
    """Module form of ``sparsemax_bisect_loss``.

    Args:
        n_iter: Without effect.
        ignore_index: Target of the rows to leave out of the sum and of the mean; any integer.
        reduction: ``"elementwise_mean"`` or ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        n_iter: int | None = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.n_iter = n_iter

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        """See ``sparsemax_bisect_loss``."""
        return sparsemax_bisect_loss(X, target, self.n_iter)


class EntmaxBisectLoss(_GenericLoss):
    """Module form of ``entmax_bisect_loss``.

    Args:
        alpha: A number or a tensor; a parameter is registered and so trained.
        n_iter: Without effect.
        ignore_index: Target of the rows to leave out of the sum and of the mean; any integer.
        reduction: ``"elementwise_mean"`` or ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int | None = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.alpha = alpha
        self.n_iter = n_iter

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        """See ``entmax_bisect_loss``."""
        return entmax_bisect_loss(X, target, self.alpha, self.n_iter)


class NormmaxBisectLoss(_GenericLoss):
    """Module form of ``normmax_bisect_loss``.

    Args:
        alpha: A number or a tensor.
        n_iter: Without effect.
        ignore_index: Target of the rows to leave out of the sum and of the mean; any integer.
        reduction: ``"elementwise_mean"`` or ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int | None = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.alpha = alpha
        self.n_iter = n_iter

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        """See ``normmax_bisect_loss``."""
        return normmax_bisect_loss(X, target, self.alpha, self.n_iter)
