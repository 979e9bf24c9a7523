"""Rotary positions: pairs of features turn with the position of their token."""

import torch
from torch import Tensor


def rotation(
    positions: Tensor, head_dim: int, *, theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines ``(b, 1, q, d / 2)`` of the angles by which to turn.

    Pair i of a head turns by ``position * theta ** (-2 i / d)``. Angles are computed in float64:
    those of positions in the ten thousands have no digits to spare in float32.

    Args:
        positions: ``(b, q)``.
        head_dim: ``d``, even.
        theta: Base of the wavelengths.
        dtype: Dtype of the result.
    """
    exponents = torch.arange(0, head_dim, 2, device=positions.device).double() / head_dim
    angles = positions[:, None, :, None] * theta**-exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn features i and ``d / 2 + i`` of ``x`` ``(b, h, q, d)`` as a pair."""
    cos, sin = turn
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
