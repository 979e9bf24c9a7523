"""Arguments of the ``entmax`` package: checks and conversions."""

from numbers import Integral

import torch
from torch import Tensor


def check_hint(name: str, value: int | None) -> None:
    """Raise unless ``value`` is an argument that the ``entmax`` package would take.

    There it steers how long the computation takes or how exact it is; here nothing depends on it.
    """
    if value is not None and not (isinstance(value, Integral) and value >= 1):
        raise ValueError(f"{name} must be None or an integer of at least 1; got {value!r}.")


def support_size(weights: Tensor, dim: int) -> Tensor:
    """Count the nonzero weights along ``dim``, which gets size 1."""
    return (weights > 0).sum(dim, keepdim=True)


def can_branch(X: Tensor) -> bool:
    """Whether values may decide what to do next: elsewhere than on the CPU that would stall."""
    return X.device.type == "cpu" and not torch.compiler.is_compiling()


def per_row(name: str, value: float | Tensor, X: Tensor, dim: int) -> Tensor:
    """``value`` in the shape of ``X`` with size 1 along ``dim``, which moves to the end."""
    shape = list(X.shape)
    shape[dim] = 1
    if not isinstance(value, Tensor):
        value = torch.tensor(value, dtype=torch.float64)
    try:
        return value.detach().expand(shape).movedim(dim, -1)
    except RuntimeError:
        raise ValueError(
            f"{name} must be a number or broadcast to {tuple(shape)}, the shape of X "
            f"{tuple(X.shape)} with size 1 along dim {dim}; got {tuple(value.shape)}."
        ) from None
