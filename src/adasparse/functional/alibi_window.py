"""Heads with steep slopes look only nearby, so only nearby keys are scored for them.

A key at distance D of a query has a score of at most ``|query| |key| - slope * D``, and the query
itself, which is always among its keys, sets a score that the largest one cannot be below. Where the
first is further below the second than a weight can reach, the weight is exactly zero. So a window
of keys gives the same weights as all of them, and the same gradients.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from adasparse.functional.attention import entmax_attention

#: Queries that share a window, at least.
_FEWEST = 64
#: Sequences of fewer windows than this gain nothing.
_MIN_WINDOWS = 4
#: ``exp`` of this much below 0 is 0 in float32 and in float64; weights are no larger than that.
_UNDERFLOW = {torch.float32: 104.0, torch.float64: 746.0}


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, *, alpha: float | Tensor, slopes: Tensor
) -> Tensor:
    """Return what ``entmax_attention`` gives with ``is_causal`` and slopes, ``(b, h, n, e)``.

    Args:
        query: ``(b, h, n, d)``.
        key: ``(b, g, n, d)``, of which each head serves ``h / g`` of the query.
        value: ``(b, g, n, e)``.
        alpha: A number, or one per head ``(h,)``.
        slopes: ``(h,)``, 0 for heads without positions.
    """
    h, n = query.shape[1:3]
    windows = (
        []
        if n < _MIN_WINDOWS * _FEWEST or not query.is_cpu
        else _windows(query, key, alpha, slopes)
    )
    near = [i for i, window in enumerate(windows) if _MIN_WINDOWS * window <= n]
    if not near:
        return entmax_attention(
            query, key, value, alpha=alpha, is_causal=True, alibi_slopes=slopes, enable_gqa=True
        )
    far = [i for i in range(h) if i not in near]
    window = max(math.ceil(windows[i]) for i in near)
    parts = [_attend_nearby(*_heads(near, query, key, value, alpha, slopes), window)]
    if far:
        *tensors, far_alpha, far_slopes = _heads(far, query, key, value, alpha, slopes)
        parts.append(
            entmax_attention(
                *tensors,
                alpha=far_alpha,
                is_causal=True,
                alibi_slopes=far_slopes if any(far_slopes.tolist()) else None,
            )
        )
    order = sorted(range(h), key=[*near, *far].__getitem__)
    output = torch.cat(parts, 1)
    return output if order == list(range(h)) else output[:, order]


@torch.no_grad()
def _windows(query: Tensor, key: Tensor, alpha: float | Tensor, slopes: Tensor) -> list[float]:
    """Return for each head a distance at which all weights are zero, infinite without a slope."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    query, key = query.to(dtype) * query.shape[-1] ** -0.5, key.to(dtype)
    longest = key.norm(dim=-1).amax((0, 2))
    above = query.norm(dim=-1) * longest[:, None] - (query * key).sum(-1)
    excess = torch.as_tensor(alpha, dtype=torch.float64) - 1
    reach = (1 / excess).clamp(max=_UNDERFLOW[dtype])
    # A thousandth more for rounding, and a token.
    steps: Tensor = (above.amax((0, 2)).double() * 1.001 + reach) / slopes.double() + 1
    return [float(x) for x in steps]


def _heads(
    which: list[int],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    slopes: Tensor,
) -> tuple[Tensor, Tensor, Tensor, float | Tensor, Tensor]:
    """Return what belongs to some of the heads, keys and values as many as queries."""
    shared = query.shape[1] // key.shape[1]
    groups = [i // shared for i in which]
    return (
        _pick(query, 1, which),
        _pick(key, 1, groups),
        _pick(value, 1, groups),
        _pick(alpha, 0, which) if isinstance(alpha, Tensor) else alpha,
        _pick(slopes, 0, which),
    )


def _pick(x: Tensor, dim: int, which: list[int]) -> Tensor:
    """Return some of a dimension, a view where they are side by side."""
    if which == list(range(which[0], which[-1] + 1)):
        return x.narrow(dim, which[0], len(which))
    return x.index_select(dim, torch.tensor(which))


def _attend_nearby(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    slopes: Tensor,
    window: int,
) -> Tensor:
    """Attend to the ``window`` keys before each query and to itself, and maybe a few more."""
    n = query.shape[2]
    size = max(_FEWEST, window)
    num_blocks = -(-n // size)
    fill = num_blocks * size - n
    # Blocks (b, t, h, size, d), and the keys up to the last of each (b, t, h, window + size, d).
    query = pad(query, (0, 0, 0, fill)).unflatten(2, (num_blocks, size)).transpose(1, 2)
    key, value = (
        pad(x, (0, 0, window, fill)).unfold(2, window + size, size).permute(0, 2, 1, 4, 3)
        for x in (key, value)
    )
    i, j = torch.arange(size).unsqueeze(-1), torch.arange(window + size)
    before = window - size * torch.arange(num_blocks)[:, None, None]  # keys that there are not
    mask = (j <= i + window) & (j >= before)
    output = entmax_attention(
        query, key, value, alpha=alpha, attn_mask=mask.unsqueeze(1), alibi_slopes=slopes
    )
    return output.transpose(1, 2).flatten(2, 3)[:, :, :n]
