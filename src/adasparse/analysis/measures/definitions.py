"""Measures of attention: one value for each head of a layer, over any number of sentences.

Each measure is defined on one sentence as two sums for each head, and is their ratio over all
sentences: a mean over queries, or over words. It is called with the weights of a layer: ``(b, h, q,
k)`` and a padding mask, or a ``LayerWeights`` for each sentence. A query that sees nothing, as in
padding on the left, has no weights and does not count. Where nothing counts the value is NaN.

References:
    Correia, Niculae and Martins (2019), Adaptively Sparse Transformers,
    https://arxiv.org/abs/1909.00015: density, diversity, and the scores of positional,
    subword-merging and interrogation heads.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adasparse.analysis.recording.layer_weights import Array, LayerWeights, from_dense

__all__ = [
    "Measure",
    "Sums",
    "density",
    "distance",
    "diversity",
    "entropy",
    "interrogation",
    "key_weight",
    "merging",
    "offset_weight",
    "rarity",
    "split_merging",
]


@dataclass(frozen=True, eq=False)
class Sums:
    """Contribution of one sentence: ``total`` and ``count``, each ``(h,)``."""

    total: Array
    count: Array


class Measure:
    """A measure, called with a layer's weights in some sentences; returns ``(h,)``, float64.

    Args:
        sums: Contribution of one sentence, from its ``LayerWeights`` and its annotations.
        annotations: Side of each annotation, ``"queries"`` or ``"keys"``. For dense weights an
            annotation is a tensor ``(b, q)`` or ``(b, k)``, for sparse ones an array per sentence.
    """

    def __init__(self, sums: Callable[..., Sums], annotations: tuple[str, ...]) -> None:
        self.sums = sums
        self.annotations = annotations
        functools.update_wrapper(self, sums)

    def __call__(
        self,
        weights: Tensor | Sequence[LayerWeights],
        *annotations: Any,
        mask: Tensor | None = None,
        query_mask: Tensor | None = None,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        """Return the measure ``(h,)``.

        Args:
            weights: ``(b, h, q, k)``, or sparse weights for each sentence.
            annotations: As the measure needs.
            mask: ``(b, k)``, nonzero for tokens, for dense weights.
            query_mask: ``(b, q)``, for attention to another sequence; ``mask`` if None.
            is_causal: Whether query i sees keys 0 to i only, for dense weights.
            options: As the measure has.
        """
        if len(annotations) != len(self.annotations):
            raise TypeError(
                f"{self.sums.__name__} takes weights and {len(self.annotations)} annotations, of "
                f"{self.annotations}; got {len(annotations)}."
            )
        if isinstance(weights, Tensor):
            layers = from_dense(weights, mask, query_mask=query_mask, is_causal=is_causal)
            annotations = tuple(
                _unpadded(annotation, weights, side, mask, query_mask)
                for annotation, side in zip(annotations, self.annotations, strict=True)
            )
        else:
            layers = list(weights)
        found = [
            self.sums(layer, *(np.asarray(annotation[i]) for annotation in annotations), **options)
            for i, layer in enumerate(layers)
        ]
        total = np.sum([sums.total for sums in found], axis=0)
        count = np.sum([sums.count for sums in found], axis=0)
        return torch.from_numpy(ratio(total, count))


def ratio(total: Array, count: Array) -> Array:
    """Divide; NaN where there is nothing to divide by."""
    divided = np.full(np.shape(total), np.nan)
    np.divide(total, count, out=divided, where=np.asarray(count) > 0)
    return divided


def _unpadded(
    annotation: Tensor, weights: Tensor, side: str, mask: Tensor | None, query_mask: Tensor | None
) -> list[Array]:
    b, _, q, k = weights.shape
    size = q if side == "queries" else k
    annotation = torch.as_tensor(annotation)
    if tuple(annotation.shape) != (b, size):
        raise ValueError(
            f"annotations of {side} must be {(b, size)} for weights {tuple(weights.shape)}; "
            f"got {tuple(annotation.shape)}."
        )
    if side == "queries" and query_mask is not None:
        mask = query_mask
    elif side == "queries" and q != k:
        mask = None
    kept = torch.ones(b, size, dtype=torch.bool) if mask is None else mask.bool().cpu()
    return [annotation[i].cpu()[kept[i]].numpy() for i in range(b)]


def _measure(*annotations: str) -> Callable[[Callable[..., Sums]], Measure]:
    return lambda sums: Measure(sums, annotations)


def _by_head(layer: LayerWeights, values: Array, where: Array | None = None) -> Array:
    """Add up values of entries ``(n,)`` for each head."""
    head = layer.head
    if where is not None:
        head, values = head[where], values[where]
    return np.bincount(head, values, minlength=layer.shape[0])


def _by_row(layer: LayerWeights, values: Array) -> Array:
    """Add up values of entries ``(n,)`` for each head and query ``(h, q)``."""
    h, q, _ = layer.shape
    return np.bincount(layer.row, values, minlength=h * q).reshape(h, q)


def _surprise(values: Array) -> Array:
    """The part -p log p of an entropy that each weight has, in nats."""
    values = values.astype(np.float64)
    return -values * np.log(values)


def _seen(layer: LayerWeights, keys: Array) -> Array:
    """Number of marked keys that each query sees ``(q,)``.

    Where only some keys are visible and not the past, as in local attention to both sides, the
    marked ones are taken to be spread evenly.
    """
    _, q, k = layer.shape
    if not layer.is_causal:
        return np.asarray(keys.sum() * layer.visible / max(k, 1))
    before = np.concatenate([[0], np.cumsum(keys)])
    last = np.minimum(np.arange(1, q + 1), k)
    return np.asarray(before[last] - before[np.maximum(last - layer.visible, 0)])


@_measure()
def density(layer: LayerWeights) -> Sums:
    """Share of the keys that get a weight, of all that a query sees, over all queries.

    Weights that are not exactly zero, divided by visible keys; for softmax it is 1.
    """
    return Sums(layer.used.sum(1), (layer.visible * layer.attends).sum(1))


@_measure()
def entropy(layer: LayerWeights) -> Sums:
    """Mean entropy of the weights of a query: 0 for a single key, 1 for all alike.

    Shannon's, to the base of the number of keys that the query sees; queries that see a single key
    do not count.
    """
    counted = layer.attends & (layer.visible > 1)
    bits = _by_row(layer, _surprise(layer.value)) / np.log(np.maximum(layer.visible, 2))
    return Sums((bits * counted).sum(1), counted.sum(1))


@_measure()
def diversity(layer: LayerWeights) -> Sums:
    """Jensen-Shannon divergence of the heads of a layer, mean over queries; one value, ``(1,)``.

    Entropy of the mean over heads, minus the mean over heads of the entropy, to the base of the
    number of keys that the query sees: 0 if all heads do the same, 1 at most. Queries that see a
    single key do not count.
    """
    h, q, k = layer.shape
    counted = layer.attends.any(0) & (layer.visible > 1)
    value = layer.value.astype(np.float64) / h
    pair = layer.query.astype(np.int64) * k + layer.col
    pairs, which = np.unique(pair, return_inverse=True)
    mean = np.bincount(which, value, minlength=len(pairs))
    together = np.bincount(pairs // max(k, 1), _surprise(mean), minlength=q)
    alone = _by_row(layer, _surprise(layer.value)).mean(0)
    gain = (together - alone) / np.log(np.maximum(layer.visible, 2))
    return Sums(np.array([(gain * counted).sum()]), np.array([counted.sum()]))


@_measure()
def offset_weight(layer: LayerWeights, *, offset: int) -> Sums:
    """Mean weight on the token ``offset`` after the query's own: confidence of a positional head.

    -1 is the token before, 0 the query's own, 1 the next. Queries at the edge, for which there is
    no such token, do not count.
    """
    _, q, k = layer.shape
    there = np.arange(q) + offset
    counted = layer.attends & (there >= 0) & (there < k)
    total = _by_head(layer, layer.value, layer.col == layer.query + offset)
    return Sums(total, counted.sum(1))


@_measure()
def distance(layer: LayerWeights) -> Sums:
    """Mean number of tokens between a query and what it attends to, by weight."""
    gap = np.abs(layer.col - layer.query)
    return Sums(_by_head(layer, gap * layer.value), _by_head(layer, layer.value))


@_measure("keys")
def key_weight(layer: LayerWeights, keys: Array) -> Sums:
    """Mean weight on the marked keys together, over the queries that see any of them."""
    counted = layer.attends & (_seen(layer, keys) > 0)
    total = _by_head(layer, layer.value, keys.astype(bool)[layer.col])
    return Sums(total, counted.sum(1))


@_measure("keys")
def rarity(layer: LayerWeights, keys: Array) -> Sums:
    """Weight on the marked keys, the rarest words of the sentence, as a multiple of their share.

    1 is what even attention to all visible keys gives.
    """
    share = _seen(layer, keys) / np.maximum(layer.visible, 1)
    total = _by_head(layer, layer.value, keys.astype(bool)[layer.col])
    return Sums(total, (share * layer.attends).sum(1))


@_measure("keys")
def merging(layer: LayerWeights, words: Array) -> Sums:
    """Mean over words of how much a head merges their pieces: the subword-merging score.

    Of a word of several tokens, the largest weight that any of them gives to the others together;
    of a word of one token, its weight on itself. ``words`` numbers the words, from 0 on; tokens of
    -1 are in none.
    """
    return _merged(layer, words, smallest=1)


@_measure("keys")
def split_merging(layer: LayerWeights, words: Array) -> Sums:
    """The same as ``merging``, over words of several tokens only."""
    return _merged(layer, words, smallest=2)


def _merged(layer: LayerWeights, words: Array, *, smallest: int) -> Sums:
    h, q, k = layer.shape
    if q != k:
        raise ValueError(f"merging is measured where queries are keys; got {q} and {k}.")
    num_words = int(words.max(initial=-1)) + 1
    size = np.bincount(words[words >= 0], minlength=num_words)
    own = words[layer.query]
    is_single = np.zeros(q, dtype=bool)
    is_single[words >= 0] = size[words[words >= 0]] == 1
    inside = (own >= 0) & (own == words[layer.col])
    inside &= (layer.query != layer.col) | is_single[layer.query]
    mass = _by_row(layer, layer.value * inside)
    at = np.flatnonzero(words >= 0)
    best = np.zeros((num_words, h))
    attends = np.zeros((num_words, h), dtype=bool)
    np.maximum.at(best, words[at], mass[:, at].T)
    np.logical_or.at(attends, words[at], layer.attends[:, at].T)
    counted = attends & (size >= smallest)[:, None]
    return Sums((best * counted).sum(0), counted.sum(0))


@_measure("queries", "keys")
def interrogation(layer: LayerWeights, at: Array, mark: Array) -> Sums:
    """Mean weight on the final question mark at interrogative words.

    ``at`` is True at interrogative words, ``mark`` at the question mark. Sentences without either
    do not count.
    """
    at, mark = at.astype(bool), mark.astype(bool)
    where = at[layer.query] & mark[layer.col]
    counted = (layer.attends & at).sum(1) * mark.any()
    return Sums(_by_head(layer, layer.value, where), counted)
