"""Annotations of tokens: ends, punctuation, rare words, interrogatives, question marks."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adasparse.analysis.tokens.interrogatives import CLOSING, PARTICLE, QUESTION_MARKS, STOP
from adasparse.analysis.tokens.reader import TokenRow, is_punctuation, is_unspaced

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenAnnotations:
    """Annotations of the tokens of one sentence, each ``(n,)``.

    Args:
        special: Tokens that no text contains.
        punctuation: Tokens without letters and digits.
        end: The last token, if special.
        words: Numbers of words, -1 for special tokens.
        rare: The rarest words' tokens.
        interrogative: Tokens of interrogative words.
        question: The final question mark.
    """

    special: Flags
    punctuation: Flags
    end: Flags
    words: NDArray[np.int64]
    rare: Flags
    interrogative: Flags
    question: Flags


def annotate(
    row: TokenRow, *, counts: Mapping[int, int], interrogatives: Iterable[str]
) -> TokenAnnotations:
    """Return the annotations of a sentence.

    Args:
        row: Tokens of the sentence.
        counts: Count of each token in all sentences.
        interrogatives: Interrogative words, in lower case.
    """
    special = np.array(row.is_special, dtype=bool)
    end = np.zeros(len(row), dtype=bool)
    end[-1:] = special[-1:]
    return TokenAnnotations(
        special=special,
        punctuation=np.array([is_punctuation(x) for x in row.text], dtype=bool) & ~special,
        end=end,
        words=np.array(row.words, dtype=np.int64),
        rare=_rarest(row, special, counts),
        interrogative=_asking(row, frozenset(interrogatives)),
        question=_question_mark(row),
    )


def _rarest(row: TokenRow, special: Flags, counts: Mapping[int, int]) -> Flags:
    often = np.array([counts.get(number, 0) for number in row.ids], dtype=np.int64)
    if special.all():
        return np.zeros(len(row), dtype=bool)
    return np.asarray(~special & (often == often[~special].min()))


def _asking(row: TokenRow, interrogatives: frozenset[str]) -> Flags:
    def asks(text: str) -> bool:
        if is_unspaced(text):
            return any(word in text for word in interrogatives)
        return text.lower() in interrogatives

    asking = {word for word, text in row.word_texts().items() if asks(text)}
    return np.array([word in asking for word in row.words], dtype=bool)


def _question_mark(row: TokenRow) -> Flags:
    found = np.zeros(len(row), dtype=bool)
    for i in reversed(range(len(row))):
        text = row.text[i]
        if row.is_special[i] or not text or set(text) <= CLOSING | {STOP}:
            continue
        is_mark = is_punctuation(text) and bool(set(text) & QUESTION_MARKS)
        found[i] = is_mark or text.rstrip(STOP).endswith(PARTICLE)
        break
    return found


def count_tokens(rows: Iterable[Iterable[int]]) -> Counter[int]:
    """Count how often each token occurs."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(row)
    return counts
