"""Choice of the sentences and heads to show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adasparse.analysis.figures.heads import MOST_TOKENS, HeadPicture
from adasparse.analysis.figures.style import run_label
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.recording.storage import RecordedSentence
from adasparse.analysis.tokens.annotations import TokenAnnotations, annotate
from adasparse.analysis.tokens.reader import TokenRow

#: Tokens of a sentence to be shown as a matrix: the best number, and the largest.
_GOOD_LENGTH, _LONGEST = 12, 26


@dataclass(frozen=True, kw_only=True)
class SentenceFacts:
    """Facts about a sentence to choose by.

    Args:
        length: Number of tokens of the source.
        num_split: Number of words of several tokens.
        asks: Whether there is an interrogative word.
        is_question: Whether it ends in a question mark.
    """

    length: int
    num_split: int
    asks: bool
    is_question: bool


def sentence_facts(row: TokenRow, interrogatives: frozenset[str]) -> SentenceFacts:
    """Return the facts about the source of a sentence."""
    annotations = annotate(row, counts={}, interrogatives=interrogatives)
    return SentenceFacts(
        length=len(row),
        num_split=len(split_words(annotations)),
        asks=bool(annotations.interrogative.any()),
        is_question=bool(annotations.question.any()),
    )


def split_words(annotations: TokenAnnotations) -> list[tuple[int, int]]:
    """Return where words of several tokens begin and end."""
    at = np.flatnonzero(annotations.words >= 0)
    found = np.unique(annotations.words[at], return_index=True, return_counts=True)
    return [
        (int(start), int(start + count))
        for start, count in zip(at[found[1]], found[2], strict=True)
        if count > 1
    ]


@dataclass(frozen=True, kw_only=True)
class SentenceChoice:
    """Numbers of the sentences to show; None where there is none.

    Args:
        position: Sentence for heads that look at neighbors.
        merging: Sentence for heads that merge the pieces of words.
        question: Sentence with an interrogative word and a question mark.
        statement: Sentence with such a word that is no question.
        extremes: For each run, the sentences where one head is least and most sparse, and the
            head.
        more: Other sentences, for the explorer.
    """

    position: int | None
    merging: int | None
    question: int | None
    statement: int | None
    extremes: tuple[tuple[int, int, tuple[str, int, int]] | None, ...]
    more: tuple[int, ...]

    def all(self) -> list[int]:
        """Return every sentence once, the most interesting first."""
        found = [self.position, self.merging, self.question, self.statement]
        for extreme in self.extremes:
            found += extreme[:2] if extreme is not None else ()
        return list(dict.fromkeys(x for x in (*found, *self.more) if x is not None))


def choose_sentences(
    facts: Sequence[SentenceFacts], runs: Sequence[Measures], *, more: int = 24
) -> SentenceChoice:
    """Choose sentences that show what heads do.

    Args:
        facts: Facts about every sentence.
        runs: Measures of each run over the same sentences.
        more: Number of others to take, spread evenly over the set.
    """

    def nearest(candidates: list[int]) -> int | None:
        short = [i for i in candidates if facts[i].length <= _LONGEST] or candidates
        return min(short, key=lambda i: (abs(facts[i].length - _GOOD_LENGTH), i), default=None)

    everything = list(range(len(facts)))
    split = [i for i in everything if facts[i].num_split]
    most = max((facts[i].num_split for i in split if facts[i].length <= _LONGEST), default=0)
    spread = np.linspace(0, len(facts) - 1, min(more, len(facts))).round().astype(int)
    return SentenceChoice(
        position=nearest(everything),
        merging=nearest([i for i in split if facts[i].num_split >= min(most, 3)]),
        question=nearest([i for i in everything if facts[i].asks and facts[i].is_question]),
        statement=nearest([i for i in everything if facts[i].asks and not facts[i].is_question]),
        extremes=tuple(_extreme(run) for run in runs),
        more=tuple(int(i) for i in np.unique(spread)),
    )


def _extreme(run: Measures) -> tuple[int, int, tuple[str, int, int]] | None:
    """Find the head whose density differs the most between sentences of similar length."""
    kind = self_kind(run)
    density = run.by_sentence(kind, "density")
    best: tuple[float, tuple[int, int, tuple[str, int, int]]] | None = None
    for layer, head in np.ndindex(density.shape[1:]):
        if not np.isfinite(density[:, layer, head]).any():
            continue
        least, most = run.extremes(kind, layer, head)
        gap = float(density[least, layer, head] - density[most, layer, head])
        if gap > 0 and (best is None or gap > best[0]):
            best = (gap, (least, most, (kind, layer, head)))
    return None if best is None else best[1]


def self_kind(run: Measures) -> str:
    """Return the kind of self-attention that is looked into: the encoder's, if there is one."""
    return "encoder" if "encoder" in run.header.kinds else "decoder"


def best_head(run: Measures, key: str, *, kind: str | None = None) -> tuple[str, int, int] | None:
    """Return the head for which a measure is highest; None where it is not defined."""
    kind = self_kind(run) if kind is None else kind
    values = run.values(kind, key)
    if not np.isfinite(values).any():
        return None
    layer, head = np.unravel_index(np.nanargmax(values), values.shape)
    return kind, int(layer), int(head)


def readable(row: TokenRow) -> list[str]:
    """Return tokens as figures show them: pieces that continue a word begin with a tilde."""
    pieces = zip(row.text, row.tokens, row.words, (-1, *row.words), strict=False)
    return [
        f"~{text}" if word == before and word >= 0 else text or token
        for text, token, word, before in pieces
    ]


def picture(
    run: Measures,
    sentence: RecordedSentence,
    at: tuple[str, int, int],
    *,
    note: str,
    annotations: Mapping[str, TokenAnnotations] | None = None,
) -> HeadPicture:
    """Return one head in one sentence, ready to be drawn.

    Args:
        run: Measures of the run.
        sentence: Sentence recorded from it.
        at: Kind of attention, layer and head.
        note: Text to add to the title.
        annotations: Annotations to draw: ``"words"`` frames words of several tokens, ``"asks"``
            emphasizes interrogative words.
    """
    kind, layer, head = at
    queries, keys = sentence.tokens(kind)
    annotations = annotations or {}
    alpha = run.header.alpha[kind][layer][head]
    kept = "" if sentence.top is None else f", largest {sentence.top} of each row"
    asking = np.flatnonzero(annotations["asks"].interrogative) if "asks" in annotations else ()
    return HeadPicture(
        run=run_label(run.header),
        title=f"layer {layer + 1}, head {head + 1}, α = {alpha:.2f}, {note}{kept}",
        weights=sentence.attention[kind][layer].of_head(head).first(MOST_TOKENS).dense()[0],
        queries=readable(queries),
        keys=readable(keys),
        words=split_words(annotations["words"]) if "words" in annotations else (),
        marked=[int(i) for i in asking],
    )
