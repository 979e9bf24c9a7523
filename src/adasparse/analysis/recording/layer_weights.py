"""Attention weights of one layer in one sentence as a compressed sparse matrix."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerWeights:
    """A compressed matrix with a row for each head and query, ``(h * q, k)``, without padding.

    Args:
        crow: ``(h * q + 1,)``: where each row begins, and the end.
        col: ``(n,)``: the key of each entry, rising within a row.
        value: ``(n,)``: its weight.
        visible: ``(q,)``: how many keys each query could see.
        shape: ``(h, q, k)``.
        is_causal: Whether the keys that query i sees end with key i.
        support: ``(h * q,)``: how many weights of each row were not zero, where only the largest
            were kept; None if all were.
    """

    crow: Array
    col: Array
    value: Array
    visible: Array
    shape: tuple[int, int, int]
    is_causal: bool = False
    support: Array | None = None

    @cached_property
    def counts(self) -> Array:
        """Number of entries of each row ``(h * q,)``."""
        return np.diff(self.crow)

    @cached_property
    def row(self) -> Array:
        """The row of each entry ``(n,)``: ``head * q + query``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def head(self) -> Array:
        """The head of each entry ``(n,)``."""
        return self.row // max(self.shape[1], 1)

    @cached_property
    def query(self) -> Array:
        """The query of each entry ``(n,)``."""
        return self.row % max(self.shape[1], 1)

    @cached_property
    def attends(self) -> Array:
        """Whether each row has any weight ``(h, q)``; those fully masked have none."""
        return (self.counts > 0).reshape(self.shape[:2])

    @cached_property
    def used(self) -> Array:
        """Number of weights of each row that are not zero ``(h, q)``, kept or not."""
        support = self.counts if self.support is None else self.support
        return support.reshape(self.shape[:2])

    def dense(self) -> Array:
        """Return the matrix ``(h, q, k)``."""
        h, q, k = self.shape
        matrix = np.zeros((h * q, k), dtype=self.value.dtype)
        matrix[self.row, self.col] = self.value
        return matrix.reshape(h, q, k)

    def of_head(self, head: int) -> "LayerWeights":
        """Return one head, ``(1, q, k)``."""
        q = self.shape[1]
        rows = slice(head * q, (head + 1) * q)
        start, stop = self.crow[rows.start], self.crow[rows.stop]
        return LayerWeights(
            crow=self.crow[rows.start : rows.stop + 1] - start,
            col=self.col[start:stop],
            value=self.value[start:stop],
            visible=self.visible,
            shape=(1, q, self.shape[2]),
            is_causal=self.is_causal,
            support=None if self.support is None else self.support[rows],
        )

    def first(self, tokens: int) -> "LayerWeights":
        """Keep the weights of the first queries on the first keys, ``tokens`` of each at most."""
        h, q, k = self.shape
        if q <= tokens and k <= tokens:
            return self
        rows = np.tile(np.arange(q) < tokens, h)
        kept = rows[self.row] & (self.col < tokens)
        counts = np.bincount(self.row[kept], minlength=h * q)[rows]
        return LayerWeights(
            crow=_offsets(counts),
            col=self.col[kept],
            value=self.value[kept],
            visible=self.visible[:tokens],
            shape=(h, min(q, tokens), min(k, tokens)),
            is_causal=self.is_causal,
            support=self.used.reshape(-1)[rows],
        )

    def largest(self, top: int) -> "LayerWeights":
        """Keep at most the ``top`` largest weights of each row; of equal ones, the first."""
        if not len(self.counts) or self.counts.max() <= top:
            return self
        order = np.lexsort((-self.value, self.row))  # by row, then from the largest down
        rank = np.arange(len(order)) - np.repeat(self.crow[:-1], self.counts)
        kept = np.sort(order[rank < top])
        return LayerWeights(
            crow=_offsets(np.minimum(self.counts, top)),
            col=self.col[kept],
            value=self.value[kept],
            visible=self.visible,
            shape=self.shape,
            is_causal=self.is_causal,
            support=self.used.reshape(-1),
        )

    @staticmethod
    def from_entries(
        *,
        row: Array,
        col: Array,
        value: Array,
        visible: Array,
        shape: tuple[int, int, int],
        is_causal: bool = False,
        support: Array | None = None,
    ) -> "LayerWeights":
        """Build a matrix of entries in any order; ``row`` is ``head * q + query``."""
        order = np.lexsort((col, row))
        counts = np.bincount(row, minlength=shape[0] * shape[1])
        return LayerWeights(
            crow=_offsets(counts),
            col=col[order].astype(np.int32),
            value=value[order],
            visible=visible,
            shape=shape,
            is_causal=is_causal,
            support=support,
        )


def _offsets(counts: Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def from_dense(
    weights: Tensor,
    mask: Tensor | None = None,
    *,
    query_mask: Tensor | None = None,
    is_causal: bool = False,
) -> list[LayerWeights]:
    """Take the sentences of a batch of dense weights apart, without padding.

    Args:
        weights: ``(b, h, q, k)``.
        mask: ``(b, k)``, True or nonzero for a token, False or 0 for padding. Without a mask there
            is no padding.
        query_mask: ``(b, q)``, for attention to another sequence; ``mask`` if None.
        is_causal: Whether query i sees keys 0 to i only.
    """
    if weights.dim() != 4:
        raise ValueError(f"weights must be (b, h, q, k); got {tuple(weights.shape)}.")
    b, _, q, k = weights.shape
    keys = torch.ones(b, k, dtype=torch.bool) if mask is None else mask.bool().cpu()
    if query_mask is None:
        query_mask = keys if q == k else torch.ones(b, q, dtype=torch.bool)
    queries = query_mask.bool().cpu()
    for name, given, size in (("mask", keys, (b, k)), ("query_mask", queries, (b, q))):
        if tuple(given.shape) != size:
            raise ValueError(
                f"{name} must be {size} for weights {tuple(weights.shape)}; "
                f"got {tuple(given.shape)}."
            )
    values = weights.detach().cpu().double()
    return [
        _from_matrix(values[i][:, queries[i]][:, :, keys[i]].numpy(), is_causal=is_causal)
        for i in range(b)
    ]


def _from_matrix(matrix: Array, *, is_causal: bool) -> LayerWeights:
    h, q, k = matrix.shape
    rows = matrix.reshape(h * q, k)
    row, col = np.nonzero(rows)
    last = np.minimum(np.arange(1, q + 1), k)
    return LayerWeights(
        crow=_offsets(np.bincount(row, minlength=h * q)),
        col=col.astype(np.int32),
        value=rows[row, col],
        visible=last if is_causal else np.full(q, k),
        shape=(h, q, k),
        is_causal=is_causal,
    )
