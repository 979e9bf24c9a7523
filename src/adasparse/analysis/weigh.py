"""The weights of a call of attention, sparse, however long the text is."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from adasparse.analysis.weights import Array, LayerWeights
from adasparse.integrations.calls import AttentionCall

#: As many scores are computed at a time; of longer texts, some rows of one head.
_AT_ONCE = 2**21


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchWeights:
    """The weights of one call over a batch, padding included, rows in the order ``(b, h, q)``.

    ``visible`` is ``(b, q)``, ``shape`` is ``(b, h, q, k)``; else as in ``LayerWeights``.
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
            i: Its number in the batch.
            queries: ``(q,)``, True where there is a token.
            keys: ``(offset + k,)``, the same for keys.
            offset: How many keys came before the first one here.
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


def weigh(call: AttentionCall, *, top: int | None) -> BatchWeights:
    """Compute the weights of a call, sparse, some rows at a time if it is large."""
    b, h, q, k = (*call.query.shape[:3], call.key.shape[2])
    if b * h * q * k <= _AT_ONCE:
        parts = [(_visible(call), _sparse(call, top))]
    else:
        rows = max(1, _AT_ONCE // k)
        cuts = range(0, q, rows)
        pieces = [
            _part(call, i, j, start, min(start + rows, q))
            for i in range(b)
            for j in range(h)
            for start in cuts
        ]
        parts = [(_visible(piece), _sparse(piece, top)) for piece in pieces]
    counts = np.concatenate([part.counts for _, part in parts])
    support = None
    if any(part.support is not None for _, part in parts):
        support = np.concatenate([part.used.reshape(-1) for _, part in parts])
    visible = np.concatenate([seen.reshape(-1) for seen, _ in parts])
    return BatchWeights(
        crow=np.concatenate([[0], np.cumsum(counts)]),
        col=np.concatenate([part.col for _, part in parts]),
        value=np.concatenate([part.value for _, part in parts]),
        visible=visible.reshape(b, -1, q).max(1),
        support=support,
        shape=(b, h, q, k),
    )


def _sparse(call: AttentionCall, top: int | None) -> LayerWeights:
    """The weights of a call as one matrix with ``b * h`` heads."""
    b, h, q, _ = call.query.shape
    k = call.key.shape[2]
    if call.softcap is not None or call.adapts_temperature:
        return _largest(call.weights().reshape(b * h, q, k), k if top is None else top)
    found = call.support()
    if top is not None and found.crow.diff().max() > top:
        return _largest(call.weights().reshape(b * h, q, k), top)
    crow, col, value = (x.cpu() for x in found)
    return LayerWeights(
        crow=crow.numpy(),
        col=col.int().numpy(),
        value=value.float().numpy(),
        visible=np.zeros(0),
        shape=(b * h, q, k),
    )


def _largest(weights: Tensor, top: int) -> LayerWeights:
    """At most the ``top`` largest weights of each row of ``(h, q, k)``."""
    h, q, k = weights.shape
    col = weights.topk(min(top, k)).indices.sort().values.reshape(h * q, -1).cpu()
    value = weights.reshape(h * q, k).cpu().gather(1, col)
    kept = value != 0
    return LayerWeights(
        crow=np.concatenate([[0], np.cumsum(kept.sum(-1).numpy())]),
        col=col[kept].int().numpy(),
        value=value[kept].float().numpy(),
        visible=np.zeros(0),
        shape=(h, q, k),
        support=None if top >= k else (weights != 0).sum(-1).reshape(-1).cpu().numpy(),
    )


def _visible(call: AttentionCall) -> Array:
    """How many keys each query sees, ``(b, q)``; where heads differ, the most."""
    b, h, q, _ = call.query.shape
    seen = call.visible().expand(b, h, q, 1).amax(1)
    visible: Array = seen.reshape(b, q).cpu().numpy()
    return visible


def _part(call: AttentionCall, i: int, head: int, start: int, stop: int) -> AttentionCall:
    """The call of some queries of one head in one sentence."""
    group = head // (call.query.shape[1] // call.key.shape[1])
    alpha = call.alpha
    if isinstance(alpha, Tensor) and alpha.numel() > 1:
        alpha = alpha.reshape(-1)[head : head + 1]
    mask = call.mask
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.dim()) + mask.shape)
        where = (slice(i, i + 1), slice(head, head + 1), slice(start, stop))
        for dim, at in enumerate(where):
            if mask.shape[dim] > 1:
                mask = mask[(slice(None),) * dim + (at,)]
    if call.is_causal:
        mask = _with_past(mask, start, stop, call.key.shape[2], call.key.device)
    lengths = call.key_lengths
    return replace(
        call,
        query=call.query[i : i + 1, head : head + 1, start:stop],
        key=call.key[i : i + 1, group : group + 1],
        value=call.value[i : i + 1, group : group + 1],
        alpha=alpha,
        mask=mask,
        is_causal=False,
        key_lengths=None if lengths is None else lengths[i : i + 1],
        # Counting queries from the first of these shifts a row as a whole, which changes nothing.
        slopes=None if call.slopes is None else call.slopes[head : head + 1],
    )


def _with_past(mask: Tensor | None, start: int, stop: int, k: int, device: torch.device) -> Tensor:
    """Let queries ``start`` to ``stop`` see no later keys than their own number."""
    past = torch.arange(k, device=device) <= torch.arange(start, stop, device=device).unsqueeze(-1)
    if mask is None:
        return past
    return mask & past if mask.dtype == torch.bool else mask.masked_fill(~past, -torch.inf)
