"""Slopes of position biases that make heads prefer nearby keys."""

import torch
from torch import Tensor


def alibi_slopes(num_heads: int) -> Tensor:
    """Return the slopes of ALiBi, a geometric series that ends at 1/256.

    For numbers of heads that are no power of two, those of the next smaller one come first and
    then every other one of the next larger, as in the code of its authors.

    Args:
        num_heads: Number of heads ``h``.

    Returns:
        ``(h,)``, for the ``alibi_slopes`` of ``entmax_attention``.

    References:
        - Press, Smith and Lewis, [Train Short, Test Long](https://arxiv.org/abs/2108.12409), 2022:
          ALiBi.

    Example:
        >>> alibi_slopes(4)
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
        >>> alibi_slopes(5)[4]
        tensor(0.5000)
    """
    _check_num_heads(num_heads)
    below = 1 << (num_heads.bit_length() - 1)
    exponents = [8 * i / below for i in range(1, below + 1)]
    exponents += [4 * i / below for i in range(1, 2 * (num_heads - below), 2)]
    return torch.tensor([2.0**-exponent for exponent in exponents])


def nape_slopes(num_heads: int) -> Tensor:
    """Return the slopes of NAPE: 1/1, 1/2, 1/3 … for half of the heads, 0 for the others.

    Heads of slope 0 have no position at all. Only these are length-scaled in ASEntmax:
    ``LengthScale(num_heads, heads=range(num_heads // 2, num_heads))``.

    Args:
        num_heads: Number of heads ``h``; of an odd number the smaller half has slopes.

    Returns:
        ``(h,)``, for the ``alibi_slopes`` of ``entmax_attention``.

    References:
        - Vasylenko et al., [Long-Context Generalization with Sparse
          Attention](https://arxiv.org/abs/2506.16640), 2025: NAPE and ASEntmax.

    Example:
        >>> nape_slopes(6)
        tensor([1.0000, 0.5000, 0.3333, 0.0000, 0.0000, 0.0000])
    """
    _check_num_heads(num_heads)
    slopes = torch.zeros(num_heads)
    half = num_heads // 2
    slopes[:half] = 1 / torch.arange(1, half + 1)
    return slopes


def _check_num_heads(num_heads: int) -> None:
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1; got {num_heads}.")
