"""Collection of measures: the sums of every sentence, added up for each head."""

from collections.abc import Iterable, Mapping

import numpy as np

from adasparse.analysis.measures.definitions import Sums, diversity
from adasparse.analysis.measures.registry import DIVERSITY, MEASURES
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.recording.layer_weights import Array
from adasparse.analysis.recording.storage import SIDES, ModelHeader, RecordedSentence, Recording
from adasparse.analysis.tokens.annotations import annotate, count_tokens
from adasparse.analysis.tokens.interrogatives import guess_language, interrogatives_of
from adasparse.analysis.tokens.reader import TokenRow


class MeasureCollector:
    """Collector of all measures: takes one sentence after the other and keeps their sums.

    Args:
        header: Header of the model.
        counts: Count of each token, by ``"source"`` and ``"target"``; for rare words.
        interrogatives: Interrogative words, by the same keys.
    """

    def __init__(
        self,
        header: ModelHeader,
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
        annotations = {
            side: annotate(
                row,
                counts=self.counts.get(side, {}),
                interrogatives=self.interrogatives.get(side, ()),
            )
            for side, row in rows.items()
            if row is not None
        }
        for kind, layers in sentence.attention.items():
            query, key = SIDES[kind] if "target" in annotations else ("source", "source")
            size = self.header.size(kind)
            for info in MEASURES:
                if info.compute is not None and kind in info.kinds:
                    found = [
                        info.compute(layer, annotations[query], annotations[key])
                        for layer in layers
                    ]
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

    def result(self, *, resamples: int = 1000, seed: int = 0) -> Measures:
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
) -> Measures:
    """Return all measures of a recording.

    Args:
        recording: Recording of a model.
        languages: Languages of ``"source"`` and ``"target"``, as keys of ``INTERROGATIVES``;
            guessed from the questions if None.
        resamples: Number of bootstrap resamples for confidence intervals.
        seed: Seed of the bootstrap.
    """
    sentences = recording.sentences
    if languages is None:
        languages = {
            "source": guess_language(x.source_text for x in sentences),
            "target": guess_language(x.target_text or "" for x in sentences),
        }
    collector = MeasureCollector(
        recording.header,
        counts={
            "source": count_tokens(x.source.ids for x in sentences),
            "target": count_tokens(x.target.ids for x in sentences if x.target is not None),
        },
        interrogatives=interrogatives_of(languages),
    )
    for sentence in sentences:
        collector.add(sentence)
    return collector.result(resamples=resamples, seed=seed)
