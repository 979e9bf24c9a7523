"""sparsemax and 1.5-entmax: ``entmax.activations`` of the ``entmax`` package."""

from typing import Any

from torch import Tensor, nn

from adasparse.compat.entmax.arguments import check_hint, support_size
from adasparse.functional import entmax
from adasparse.functional import sparsemax as _sparsemax


def _with_support(weights: Tensor, dim: int, return_support_size: bool) -> Any:
    return (weights, support_size(weights, dim)) if return_support_size else weights


def sparsemax(
    X: Tensor, dim: int = -1, k: int | None = None, return_support_size: bool = False
) -> Any:
    """Return the probabilities nearest to the scores, most of them zero if scores differ widely.

    Args:
        X: Scores; ``-inf`` marks a masked entry.
        dim: Dimension to normalize.
        k: Without effect; the ``entmax`` package sorts the ``k`` largest scores first.
        return_support_size: Return the support size as well.

    Returns:
        Same shape and dtype as ``X``; fully masked rows are all zero. With
        ``return_support_size`` a tuple of that and the count of nonzeros, of size 1 along ``dim``.

    Example:
        >>> import torch
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]), return_support_size=True)
        (tensor([0.7500, 0.2500, 0.0000]), tensor([2]))
    """
    check_hint("k", k)
    return _with_support(_sparsemax(X, dim), dim, return_support_size)


def entmax15(
    X: Tensor, dim: int = -1, k: int | None = None, return_support_size: bool = False
) -> Any:
    """Return the probabilities of 1.5-entmax, half way between softmax and sparsemax.

    Args:
        X: Scores; ``-inf`` marks a masked entry.
        dim: Dimension to normalize.
        k: Without effect; the ``entmax`` package sorts the ``k`` largest scores first.
        return_support_size: Return the support size as well.

    Returns:
        Same shape and dtype as ``X``; fully masked rows are all zero. With
        ``return_support_size`` a tuple of that and the count of nonzeros, of size 1 along ``dim``.

    Example:
        >>> import torch
        >>> entmax15(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6740, 0.3260, 0.0000])
    """
    check_hint("k", k)
    return _with_support(entmax(X, 1.5, dim), dim, return_support_size)


def _threshold_and_support(X: Tensor, alpha: float, dim: int) -> tuple[Tensor, Tensor]:
    """Threshold and support size for scores that are multiplied by alpha - 1 already."""
    weights = entmax(X / (alpha - 1), alpha, dim)
    tau = X.amax(dim, keepdim=True) - weights.amax(dim, keepdim=True) ** (alpha - 1)
    return tau, support_size(weights, dim)


def _sparsemax_threshold_and_support(
    X: Tensor, dim: int = -1, k: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return tau and the support size where ``clamp(X - tau, min=0)`` sums to one."""
    check_hint("k", k)
    return _threshold_and_support(X, 2.0, dim)


def _entmax_threshold_and_support(
    X: Tensor, dim: int = -1, k: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return tau and the support size where ``clamp(X - tau, min=0) ** 2`` sums to one."""
    check_hint("k", k)
    return _threshold_and_support(X, 1.5, dim)


class SparsemaxFunction:
    """For code that calls ``SparsemaxFunction.apply``; the same as ``sparsemax``."""

    @staticmethod
    def apply(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
        """See ``sparsemax``."""
        return sparsemax(X, dim, k)  # type: ignore[no-any-return]


class Entmax15Function:
    """For code that calls ``Entmax15Function.apply``; as ``entmax15``, but along ``dim`` 0."""

    @staticmethod
    def apply(X: Tensor, dim: int = 0, k: int | None = None) -> Tensor:
        """See ``entmax15``."""
        return entmax15(X, dim, k)  # type: ignore[no-any-return]


class Sparsemax(nn.Module):
    """Module form of ``sparsemax``.

    Args:
        dim: Dimension to normalize.
        k: Without effect.
        return_support_size: Return the support size as well.
    """

    def __init__(
        self, dim: int = -1, k: int | None = None, return_support_size: bool = False
    ) -> None:
        super().__init__()
        self.dim = dim
        self.k = k
        self.return_support_size = return_support_size

    def forward(self, X: Tensor) -> Any:
        """See ``sparsemax``."""
        return sparsemax(X, self.dim, self.k, self.return_support_size)


class Entmax15(nn.Module):
    """Module form of ``entmax15``.

    Args:
        dim: Dimension to normalize.
        k: Without effect.
        return_support_size: Return the support size as well.
    """

    def __init__(
        self, dim: int = -1, k: int | None = None, return_support_size: bool = False
    ) -> None:
        super().__init__()
        self.dim = dim
        self.k = k
        self.return_support_size = return_support_size

    def forward(self, X: Tensor) -> Any:
        """See ``entmax15``."""
        return entmax15(X, self.dim, self.k, self.return_support_size)
