"""Every measure of a run: what each sentence adds, the values, and how sure they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from adasparse.analysis.catalog import DIVERSITY, MEASURES
from adasparse.analysis.marks import asking_words, count_tokens, guess_language, mark_tokens
from adasparse.analysis.measure import Sums, diversity, ratio
from adasparse.analysis.recording import SIDES, Header, RecordedSentence, Recording
from adasparse.analysis.tokens import TokenRow
from adasparse.analysis.weights import Array


class Meter:
    """Takes one sentence after the other and keeps what each adds to every measure.

    Args:
        header: Of the model.
        counts: How often each token occurs, by ``"source"`` and ``"target"``; for rare words.
        interrogatives: Words that ask, by the same.
    """

    def __init__(
        self,
        header: Header,
        *,
        counts: Mapping[str, Mapping[int, int]],
        interrogatives: Mapping[str, Iterable[str]],
    ) -> None:
        self.header = header
        self.counts = counts
        self.interrogatives = {side: frozenset(words) for side, words in interrogatives.items()}
        self._sums: dict[tuple[str, str], list[Array]] = {}
        self._lengths: list[int] = []
        self._top: int | None = None

    def add(self, sentence: RecordedSentence) -> None:
        """Take a sentence."""
        rows: dict[str, TokenRow | None] = {"source": sentence.source, "target": sentence.target}
        marks = {
            side: mark_tokens(
                row,
                counts=self.counts.get(side, {}),
                interrogatives=self.interrogatives.get(side, ()),
            )
            for side, row in rows.items()
            if row is not None
        }
        for kind, layers in sentence.attention.items():
            query, key = SIDES[kind] if "target" in marks else ("source", "source")
            size = self.header.size(kind)
            for info in MEASURES:
                if info.compute is not None and kind in info.kinds:
                    found = [info.compute(layer, marks[query], marks[key]) for layer in layers]
                    self._keep(kind, info.key, found, size[1])
            self._keep(kind, DIVERSITY, [diversity.sums(layer) for layer in layers], 1)
        self._lengths.append(len(sentence.source))
        tops = [top for top in (self._top, sentence.top) if top is not None]
        self._top = min(tops, default=None)

    def _keep(self, kind: str, key: str, found: list[Sums], heads: int) -> None:
        """Keep ``(2, layers, heads)``; layers of fewer heads are filled up with nothing."""
        sums = np.zeros((2, len(found), heads))
        for i, layer in enumerate(found):
            sums[0, i, : len(layer.total)] = layer.total
            sums[1, i, : len(layer.count)] = layer.count
        self._sums.setdefault((kind, key), []).append(sums)

    def result(self, *, resamples: int = 1000, seed: int = 0) -> "Measures":
        """Return all measures of the sentences so far."""
        return Measures(
            header=self.header,
            sums={name: np.stack(sums) for name, sums in self._sums.items()},
            lengths=np.array(self._lengths),
            top=self._top,
            resamples=resamples,
            seed=seed,
        )


def measure_heads(
    recording: Recording,
    *,
    languages: Mapping[str, str | None] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> "Measures":
    """Return all measures of a recording.

    Args:
        recording: Of a model.
        languages: Of ``"source"`` and ``"target"``, as keys of ``INTERROGATIVES``; guessed from the
            questions if None.
        resamples: How often sentences are drawn again for confidence intervals.
        seed: Of that.
    """
    sentences = recording.sentences
    if languages is None:
        languages = {
            "source": guess_language(x.source_text for x in sentences),
            "target": guess_language(x.target_text or "" for x in sentences),
        }
    meter = Meter(
        recording.header,
        counts={
            "source": count_tokens(x.source.ids for x in sentences),
            "target": count_tokens(x.target.ids for x in sentences if x.target is not None),
        },
        interrogatives=asking_words(languages),
    )
    for sentence in sentences:
        meter.add(sentence)
    return meter.result(resamples=resamples, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measures:
    """The measures of a run over a set of sentences.

    Args:
        header: Of the model.
        sums: ``(sentences, 2, layers, heads)`` by kind of attention and key: totals and counts.
        lengths: Tokens of each source ``(sentences,)``.
        top: How many weights of each row were recorded at most, in long texts; None is all.
        resamples: How often sentences are drawn again for confidence intervals.
        seed: Of that.
    """

    header: Header
    sums: Mapping[tuple[str, str], Array]
    lengths: Array
    top: int | None
    resamples: int
    seed: int

    @property
    def num_sentences(self) -> int:
        """How many sentences were measured."""
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
        """How often each sentence is drawn in each resample ``(resamples, sentences)``."""
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
        draws: How often each of the n is drawn in each resample ``(resamples, n)``.
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
