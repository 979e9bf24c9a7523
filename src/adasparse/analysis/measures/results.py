"""Measures of a run: values of every head, with bootstrap confidence intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from adasparse.analysis.measures.definitions import ratio
from adasparse.analysis.recording.layer_weights import Array
from adasparse.analysis.recording.storage import ModelHeader


@dataclass(frozen=True, kw_only=True, eq=False)
class Measures:
    """The measures of a run over a set of sentences.

    Args:
        header: Header of the model.
        sums: ``(sentences, 2, layers, heads)`` by kind of attention and key: totals and counts.
        lengths: Tokens of each source ``(sentences,)``.
        top: Number of weights kept per row, in long texts; None is all.
        resamples: Number of bootstrap resamples for confidence intervals.
        seed: Seed of the bootstrap.
    """

    header: ModelHeader
    sums: Mapping[tuple[str, str], Array]
    lengths: Array
    top: int | None
    resamples: int
    seed: int

    @property
    def num_sentences(self) -> int:
        """Number of measured sentences."""
        return len(self.lengths)

    def values(self, kind: str, key: str) -> Array:
        """Return a measure ``(layers, heads)``; NaN where it is not defined."""
        if key == "alpha":
            filled = np.full(self.header.size(kind), np.nan)
            for i, heads in enumerate(self.header.alpha[kind]):
                filled[i, : len(heads)] = heads
            return filled
        if (kind, key) not in self.sums:
            return np.full(self.header.size(kind), np.nan)
        total, count = self.sums[kind, key].sum(0)
        return ratio(total, count)

    def by_sentence(self, kind: str, key: str) -> Array:
        """Return a measure in each sentence alone ``(sentences, layers, heads)``."""
        sums = self.sums[kind, key]
        return ratio(sums[:, 0], sums[:, 1])

    def counted(self, kind: str, key: str) -> int:
        """Return in how many sentences a measure is defined."""
        sums = self.sums.get((kind, key))
        return 0 if sums is None else int((sums[:, 1].max((1, 2)) > 0).sum())

    def intervals(self, kind: str, key: str, *, level: float = 0.95) -> Array:
        """Return a confidence interval for each head ``(layers, heads, 2)``, by bootstrap.

        Sentences are drawn with replacement; the ends are quantiles of the values so found. NaN for
        alpha, and where fewer than two sentences count.
        """
        shape = (*self.values(kind, key).shape, 2)
        sums = self.sums.get((kind, key))
        if sums is None:
            return np.full(shape, np.nan)
        found = bootstrap(sums[:, 0], sums[:, 1], draws=self._draws, level=level)
        return np.where(((sums[:, 1] > 0).sum(0) >= 2)[..., None], found, np.nan)

    @cached_property
    def _draws(self) -> Array:
        """Count of each sentence in each resample ``(resamples, sentences)``."""
        n = self.num_sentences
        return np.random.default_rng(self.seed).multinomial(n, np.full(n, 1 / n), self.resamples)

    def extremes(self, kind: str, layer: int, head: int) -> tuple[int, int]:
        """Return where a head is least and most sparse, among sentences of similar length.

        Those are as many tokens long as most, give or take one, or as many more as it takes to
        have twenty of them.
        """
        density = self.by_sentence(kind, "density")[:, layer, head]
        middle = np.clip(np.median(self.lengths), 8, 20)
        gap = np.where(np.isfinite(density), np.abs(self.lengths - middle), np.inf)
        widest = max(1, np.sort(gap)[:20][-1])
        at = np.flatnonzero((gap <= widest) & np.isfinite(gap))
        return int(at[density[at].argmax()]), int(at[density[at].argmin()])


def bootstrap(total: Array, count: Array, *, draws: Array, level: float = 0.95) -> Array:
    """Return the ends of confidence intervals ``(..., 2)`` of ratios of sums.

    Args:
        total: ``(n, ...)``.
        count: ``(n, ...)``.
        draws: Count of each of the n in each resample ``(resamples, n)``.
        level: Share of the resamples between the ends.
    """
    n, *shape = total.shape
    drawn = draws.astype(np.float64)
    ratios = ratio(drawn @ total.reshape(n, -1), drawn @ count.reshape(n, -1))
    outside = (1 - level) / 2
    ends = np.full((2, ratios.shape[1]), np.nan)
    defined = np.isfinite(ratios).any(0)
    ends[:, defined] = np.nanquantile(ratios[:, defined], [outside, 1 - outside], axis=0)
    found: Array = ends.T.reshape(*shape, 2)
    return found
