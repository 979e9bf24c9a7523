"""Attention of some queries of a long-context model, a limited number of weights at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import linear, softplus

from adasparse.functional.entmax import entmax
from adasparse.longcontext.attention import AttentionCall
from adasparse.longcontext.temperature import inverse_temperature
from adasparse.nn import LengthScale

#: Weights that are held at once, unless a single query has more.
BLOCK_SIZE = 2**22


def weights_of_rows(
    call: AttentionCall, example: int, rows: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the weights of some queries of an example, block by block.

    Args:
        call: Of attention of all queries, without a cache.
        example: Which one of the batch.
        rows: ``(r,)``: places of the queries, rising.

    Yields:
        Which of ``rows`` a block has, and their weights ``(h, s, k)``, where the keys end with the
        last of these queries.
    """
    start = 0
    while start < len(rows):
        stop = start + _num_rows(call.query.shape[1], rows[start:])
        block = slice(start, stop)
        yield block, _weigh(call, example, rows[block])
        start = stop


def _num_rows(num_heads: int, rows: Tensor) -> int:
    """How many of the next rows go together: as many as keys up to the last leave room for."""
    number = torch.arange(1, len(rows) + 1, device=rows.device)
    return max(1, int((num_heads * number * (rows + 1) <= BLOCK_SIZE).sum()))


def _weigh(call: AttentionCall, example: int, rows: Tensor) -> Tensor:
    """Return the weights ``(h, s, k)`` of queries ``(s,)``."""
    scores = _score(call, example, rows)
    if call.adapts_temperature:
        scores = scores * inverse_temperature(scores)
    alpha = call.alpha[:, None, None] if isinstance(call.alpha, Tensor) else call.alpha
    weights: Tensor = entmax(scores, alpha)
    return weights


def _score(call: AttentionCall, example: int, rows: Tensor) -> Tensor:
    """Return the scores ``(h, s, k)``, ``-inf`` where a key is not seen."""
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    num_keys = int(rows[-1]) + 1
    query = call.query[example][:, rows].to(dtype)  # (h, s, d)
    key = call.key[example][:, :num_keys].to(dtype)  # (g, k, d)
    h, s, d = query.shape
    grouped = (query * d**-0.5).reshape(len(key), -1, d) @ key.transpose(-1, -2)
    scores: Tensor = grouped.reshape(h, s, num_keys)
    place = torch.arange(num_keys, device=rows.device)
    if call.slopes is not None:
        scores = scores - call.slopes.to(dtype)[:, None, None] * (rows[:, None] - place)
    scores = scores.masked_fill(place > rows[:, None], -torch.inf)
    mask = call.visibility.attn_mask(call.slopes)
    if mask is None:
        return scores
    mask = mask[example, ..., :num_keys]
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def beta_and_gamma(scale: LengthScale, layer_input: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return both for each scaled head and query, ``(h, r)`` each; None for SSMax, without them.

    Args:
        scale: Of a layer.
        layer_input: ``(r, n)``: what the layer gets for these queries.
    """
    if scale.kind == "ssmax":
        return None
    if scale.kind == "per_head":
        size = len(scale.heads), len(layer_input)
        return scale.beta[:, None].expand(size), scale.gamma[:, None].expand(size)
    beta = linear(layer_input, scale.beta_weight, scale.beta_bias).T.double()
    gamma = linear(layer_input, scale.gamma_weight, scale.gamma_bias).T.double()
    return softplus(beta), 2 * gamma.tanh()
