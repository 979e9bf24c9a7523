"""Attention of some queries of a long-context model, a limited number of weights at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from adasparse.functional import entmax
from adasparse.functional.adaptive_temperature import sharpened_softmax
from adasparse.functional.differentiable_attention import attention_scores
from adasparse.integrations.calls import AttentionCall

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
    problem = call.problem().sequence(example)
    scores = attention_scores(problem, rows, num_keys=int(rows[-1]) + 1)[0]
    if call.adapts_temperature:
        return sharpened_softmax(scores)
    alpha = call.alpha[:, None, None] if isinstance(call.alpha, Tensor) else call.alpha
    return entmax(scores, alpha)
