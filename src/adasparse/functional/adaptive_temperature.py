"""Softmax attention that is sharpened by its own entropy, a few rows at a time."""

import torch
from torch import Tensor

from adasparse.functional.entmax import entmax

#: Of the polynomial that gives the factor of the scores, the highest power first.
COEFFICIENTS = (-0.037, 0.481, -2.3, 4.917, -1.791)
#: Rows of no more entropy than this, in nats, are sharp enough.
LOWEST_ENTROPY = 0.5
#: Scores that are held at once.
BLOCK_SIZE = 2**22


def adaptive_temperature_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    alibi_slopes: Tensor | None = None,
) -> Tensor:
    """Attend with softmax of scores times a factor of at least 1 that depends on the entropy.

    The factor is that of Veličković et al., "softmax is not enough": a polynomial of the entropy of
    the plain weights of a row. It is a constant for gradients. No matrix of all scores is built.

    Args:
        query: ``(b, h, q, d)``.
        key: ``(b, g, k, d)``, of which each head serves ``h / g`` of the query.
        value: ``(b, g, k, e)``.
        attn_mask: Broadcasts to ``(b, h, q, k)``; bool, or float to add.
        is_causal: Whether query i sees keys 0 to i only.
        alibi_slopes: ``(h,)``.

    Returns:
        ``(b, h, q, e)``.
    """
    b, h, q, _ = query.shape
    k, g = key.shape[2], value.shape[1]
    size = max(1, BLOCK_SIZE // max(1, b * h * k))
    outputs = []
    for start in range(0, q, size):
        stop = min(start + size, q)
        weights = adaptive_temperature_weights(
            query,
            key,
            attn_mask=attn_mask,
            is_causal=is_causal,
            alibi_slopes=alibi_slopes,
            rows=slice(start, stop),
        )
        seen = weights.shape[-1]
        grouped = weights.reshape(b, g, -1, seen) @ value[:, :, :seen]
        outputs.append(grouped.reshape(b, h, stop - start, -1))
    return torch.cat(outputs, 2)


def adaptive_temperature_weights(
    query: Tensor,
    key: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    alibi_slopes: Tensor | None = None,
    rows: slice | None = None,
) -> Tensor:
    """Return the weights ``(b, h, r, k)`` of some rows, of all if None.

    If ``is_causal`` the keys after the last of these rows are left out of the result. The other
    arguments are those of ``adaptive_temperature_attention``.
    """
    start, stop, _ = (rows or slice(None)).indices(query.shape[2])
    scores = _scores(query, key, attn_mask, is_causal, alibi_slopes, start, stop)
    return entmax(scores * inverse_temperature(scores), 1.0).to(query.dtype)


@torch.no_grad()
def inverse_temperature(scores: Tensor) -> Tensor:
    """Return the factor ``(..., 1)`` of each row of scores ``(..., k)``, at least 1."""
    entropy = torch.special.entr(entmax(scores, 1.0)).sum(-1, keepdim=True)
    factor = torch.zeros_like(entropy)
    for coefficient in COEFFICIENTS:
        factor = factor * entropy + coefficient
    return torch.where(entropy > LOWEST_ENTROPY, factor.clamp(min=1), 1.0)


def _scores(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    slopes: Tensor | None,
    start: int,
    stop: int,
) -> Tensor:
    """Return the scores of queries ``start`` to ``stop``, ``-inf`` where a key is not seen."""
    b, h, q, d = query.shape
    g, k = key.shape[1:3]
    seen = stop if is_causal else k
    dtype = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        block = query[:, :, start:stop].to(dtype).reshape(b, g, -1, d) * d**-0.5
        grouped: Tensor = block @ key[:, :, :seen].to(dtype).transpose(-1, -2)
    scores = grouped.reshape(b, h, stop - start, seen)
    i = torch.arange(start, stop, device=query.device).unsqueeze(-1)
    j = torch.arange(seen, device=query.device)
    if slopes is not None:
        scores = scores - slopes.to(dtype)[:, None, None] * (i + (k - q) - j).abs()
    if is_causal:
        scores = scores.masked_fill(j > i, -torch.inf)
    if attn_mask is None:
        return scores
    if attn_mask.shape[-2] != 1:
        attn_mask = attn_mask[..., start:stop, :]
    attn_mask = attn_mask[..., :seen]
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -torch.inf)
    return scores + attn_mask
