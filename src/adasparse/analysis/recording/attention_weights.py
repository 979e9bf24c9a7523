"""Weights of an attention call, sparse or by rows, in blocks of limited size."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adasparse.analysis.recording.layer_weights import Array, LayerWeights
from adasparse.integrations.calls import AttentionCall

#: Number of weights computed at once, unless a single query has more.
BLOCK_SIZE = 2**21


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchWeights:
    """Weights of one call over a batch, padding included, rows in the order ``(b, h, q)``.

    ``visible`` is ``(b, q)``, ``shape`` is ``(b, h, q, k)``; other fields as in ``LayerWeights``.
    """

    crow: Array
    col: Array
    value: Array
    visible: Array
    support: Array | None
    shape: tuple[int, int, int, int]

    def sentence(
        self, i: int, *, queries: Array, keys: Array, offset: int = 0, is_causal: bool = False
    ) -> LayerWeights:
        """Return sentence i without padding.

        Args:
            i: Index of the sentence in the batch.
            queries: ``(q,)``, True for tokens, False for padding.
            keys: ``(offset + k,)``, the same for keys.
            offset: Number of keys before the first one of this call.
            is_causal: Whether query i sees no keys after i.
        """
        _, h, q, k = self.shape
        rows = slice(i * h * q, (i + 1) * h * q)
        entries = slice(self.crow[rows.start], self.crow[rows.stop])
        counts = np.diff(self.crow[rows.start : rows.stop + 1])
        kept_rows = np.tile(queries, h)
        kept = np.repeat(kept_rows, counts)
        col = self.col[entries][kept] + offset
        assert len(keys) == offset + k and keys[col].all()
        return LayerWeights(
            crow=np.concatenate([[0], np.cumsum(counts[kept_rows])]),
            col=(np.cumsum(keys) - 1)[col].astype(np.int32),
            value=self.value[entries][kept],
            visible=self.visible[i][queries],
            shape=(h, int(queries.sum()), int(keys.sum())),
            is_causal=is_causal,
            support=None if self.support is None else self.support[rows][kept_rows],
        )


def sparse_weights(call: AttentionCall, *, top: int | None) -> BatchWeights:
    """Return the nonzero weights of a call.

    Args:
        call: The attention call.
        top: Number of weights to keep per row, the largest; None keeps all.
    """
    b, h, q, k = (*call.query.shape[:3], call.key.shape[2])
    if b * h * q * k <= BLOCK_SIZE:
        parts = [_from_support(call, top)]
    else:
        parts = []
        for i in range(b):
            blocks = [_from_block(weights, top) for _, weights in weight_blocks(call, i)]
            parts += [block.of_head(j) for j in range(h) for block in blocks]
    support = None
    if any(part.support is not None for part in parts):
        support = np.concatenate([part.used.reshape(-1) for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    return BatchWeights(
        crow=np.concatenate([[0], np.cumsum(counts)]),
        col=np.concatenate([part.col for part in parts]),
        value=np.concatenate([part.value for part in parts]),
        visible=_visible(call),
        support=support,
        shape=(b, h, q, k),
    )


def weight_blocks(
    call: AttentionCall, example: int, rows: Tensor | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the weights of some queries of an example, block by block.

    Args:
        call: The attention call.
        example: Index of the example in the batch.
        rows: ``(r,)``: positions of the queries, ascending; all if None.

    Yields:
        The slice of ``rows`` that a block covers, and its weights ``(h, s, k)`` in float32 or
        float64. In causal attention, keys after the last of these queries are left out.
    """
    h, q, k = *call.query.shape[1:3], call.key.shape[2]
    if rows is None:
        rows = torch.arange(q, device=call.query.device)
    num_keys = (rows + 1).clamp(max=k) if call.is_causal else torch.full_like(rows, k)
    start = 0
    while start < len(rows):
        sizes = torch.arange(1, len(rows) - start + 1, device=rows.device) * num_keys[start:]
        stop = start + max(1, int((h * sizes <= BLOCK_SIZE).sum()))
        block = slice(start, stop)
        yield block, call.weights_of_rows(example, rows[block], num_keys=int(num_keys[stop - 1]))
        start = stop


def _from_support(call: AttentionCall, top: int | None) -> LayerWeights:
    """Return the weights of a small call as one matrix with ``b * h`` heads."""
    b, h, q, _ = call.query.shape
    crow, col, value = (x.cpu() for x in call.support())
    layer = LayerWeights(
        crow=crow.numpy(),
        col=col.int().numpy(),
        value=value.float().numpy(),
        visible=np.zeros(0),
        shape=(b * h, q, call.key.shape[2]),
    )
    return layer if top is None else layer.largest(top)


def _from_block(weights: Tensor, top: int | None) -> LayerWeights:
    """Return the nonzero weights of a block ``(h, s, k)``, at most the ``top`` largest per row."""
    h, s, k = weights.shape
    rows = weights.reshape(h * s, k)
    counts = support = rows.count_nonzero(-1)
    if top is None or top >= k:
        row, col = rows.nonzero(as_tuple=True)
        value = rows[row, col]
    else:
        order = rows.topk(top).indices.sort().values
        largest = rows.gather(1, order)
        kept = largest != 0
        counts, col, value = kept.sum(-1), order[kept], largest[kept]
    return LayerWeights(
        crow=np.concatenate([[0], counts.cumsum(0).cpu().numpy()]),
        col=col.int().cpu().numpy(),
        value=value.float().cpu().numpy(),
        visible=np.zeros(0),
        shape=(h, s, k),
        support=None if counts is support else support.cpu().numpy(),
    )


def _visible(call: AttentionCall) -> Array:
    """Return the number of keys that each query sees, ``(b, q)``: the most over heads."""
    b, h, q, _ = call.query.shape
    visible: Array = call.visible().expand(b, h, q, 1).amax(1).reshape(b, q).cpu().numpy()
    return visible
