"""Checks of arguments that the operator, the losses and attention share."""

import math
import sys
from functools import lru_cache
from operator import index
from typing import Any

import torch
from torch import Tensor

from adasparse.functional.backends import is_transformed, needs_registered_op

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def is_one_or(want: int, got: int) -> bool:
    """Whether a size is 1 or ``want``; ``in`` would not compare symbolic sizes by value."""
    # torch 2.6 does not trace bool() of a symbolic comparison, which is not a bool without.
    if got == 1 or got == want:  # noqa: SIM103
        return True
    return False


def check_dense(name: str, x: Tensor, *, if_nested: str = "") -> None:
    """Raise unless a tensor is strided; nested ones may say that they are."""
    if x.is_nested:
        raise TypeError(f"{name} must be a dense (strided) tensor; got a nested one.{if_nested}")
    if x.layout != torch.strided:
        raise TypeError(f"{name} must be a dense (strided) tensor; got {x.layout}.")


def check_scores(scores: Tensor, dim: int) -> int:
    """Raise unless ``scores`` can be normalized along ``dim``; return ``dim`` counted from 0."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores must be a tensor; got {type(scores).__name__}.")
    if scores.dtype not in DTYPES:
        raise TypeError(
            "scores must be float32, float64, bfloat16 or float16; "
            f"got {scores.dtype}. Convert them with .float() first."
        )
    check_dense("scores", scores)
    if not isinstance(dim, int):
        dim = _as_integer(dim)
    rank = max(scores.dim(), 1)
    if not -rank <= dim < rank:
        raise IndexError(f"dim must be from {-rank} to {rank - 1}; got {dim}.")
    return dim % rank


def _as_integer(dim: Any) -> int:
    """Return a dimension that is an integer of another library, or raise."""
    try:
        return index(dim)
    except TypeError:
        raise TypeError(f"dim must be an integer; got {type(dim).__name__}.") from None


def number_as_alpha(alpha: float, lowest: float = 1.0) -> float:
    """Return an alpha that is no tensor, or raise."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise TypeError(f"alpha must be a number or a tensor; got {type(alpha).__name__}.")
    if not lowest <= alpha <= sys.float_info.max:  # an int may be larger
        raise ValueError(f"alpha must be at least {lowest:g} and finite; got {alpha}.")
    return alpha


def constant(number: float, rank: int) -> Tensor:
    """Return a number as a float64 tensor in CPU memory, all of whose sizes are 1; shared."""
    if needs_registered_op() or is_transformed() or torch._C._len_torch_dispatch_stack():
        nested: Any = number
        for _ in range(rank):
            nested = [nested]
        # Exporters know the value of this form, and not that of torch.full.
        return torch.tensor(nested, dtype=torch.float64, device="cpu")
    return _shared_constant(number, rank)


@lru_cache(maxsize=128)
def _shared_constant(number: float, rank: int) -> Tensor:
    with torch.inference_mode(False):  # whose tensors autograd cannot save
        return torch.full((1,) * rank, number, dtype=torch.float64, device="cpu")


def as_alpha(alpha: float | Tensor, scores: Tensor, dim: int, *, lowest: float = 1.0) -> Tensor:
    """Return alpha as a tensor of rank 0, or of that of ``scores`` with size 1 along ``dim``."""
    if not isinstance(alpha, Tensor):
        return constant(number_as_alpha(alpha, lowest), 0)
    if not alpha.is_floating_point():
        raise TypeError(f"alpha must be a floating point tensor; got {alpha.dtype}.")
    check_dense("alpha", alpha)
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
        not is_one_or(want, got) for got, want in zip(padded, expected, strict=True)
    ):
        raise ValueError(
            f"alpha must broadcast to {tuple(expected)}, the shape of scores "
            f"{tuple(scores.shape)} with size 1 along dim {dim}; got {tuple(alpha.shape)}."
        )
    return alpha.reshape(padded)


def with_bound(alpha: Tensor, highest: float | None) -> Tensor:
    """Note a bound of alpha that holds whatever its values, which an exporter does not know.

    ``bound_of`` finds it on this very tensor alone, as long as no operation has changed it.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling():
        alpha.highest_alpha = highest, alpha._version  # type: ignore[attr-defined]
    return alpha


def bound_of(alpha: float | Tensor) -> float | None:
    """Return the bound that was noted of a tensor while exporting, else None."""
    if not torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling():
        return None
    highest, version = getattr(alpha, "highest_alpha", (None, 0))
    return highest if version == getattr(alpha, "_version", 0) else None


def check_alpha_values(alpha: Tensor, lowest: float) -> None:
    """Raise if an alpha in CPU memory is below ``lowest`` or infinite; others would stall."""
    if not alpha.is_cpu or not alpha.numel():
        return
    if alpha.numel() == 1:
        low = high = alpha.item()
    else:
        low, high = (x.item() for x in alpha.detach().aminmax())
    if not (low >= lowest and high < math.inf):
        bad = low if not low >= lowest else high
        raise ValueError(f"alpha must be at least {lowest:g} and finite; got {bad}.")


def rows_of(x: Tensor) -> Tensor:
    """``(..., n)`` as contiguous ``(rows, n)``, with its sign in memory."""
    x = x.resolve_neg()
    if x.dim() == 2 and x.is_contiguous():
        return x
    return x.contiguous().view(-1, x.shape[-1]) if x.numel() else x.reshape(0, x.shape[-1])


def alpha_rows(alpha: Tensor, batch: torch.Size) -> Tensor:
    """Alpha in float64: one value, or one for each of the rows of ``batch``."""
    if alpha.requires_grad or alpha.dtype != torch.float64:
        alpha = alpha.detach().double()
    alpha = alpha.resolve_neg()
    if alpha.numel() == 1:
        return alpha
    return alpha.expand(*batch, 1).reshape(-1).contiguous()


def sum_to_alpha(grad_rows: Tensor, alpha: Tensor, batch: torch.Size) -> Tensor:
    """Add up the gradients of rows that share an alpha."""
    if alpha.numel() == 1:
        return grad_rows.sum().reshape(alpha.shape).to(alpha)
    return grad_rows.reshape(*batch, 1).sum_to_size(alpha.shape).to(alpha)
