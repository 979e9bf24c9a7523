"""Which tokens of a sentence are what: ends, punctuation, rare words, questions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from adasparse.analysis.tokens import TokenRow, is_punctuation, is_unspaced
from adasparse.analysis.weights import Array

_WORDS = {
    "cs": "kdo koho komu co čeho kdy kde kam odkud jak proč který která které kolik čí",
    "de": "wer wen wem wessen was wann wo wohin woher wie warum wieso weshalb weswegen welche "
    "welcher welches welchen welchem wozu womit wofür woran worauf worüber wovon wonach wodurch "
    "wieviel wieviele inwiefern",
    "en": "who whom whose what when where why how which",
    "fr": "qui que quoi quand où comment pourquoi quel quelle quels quelles combien",
    "ja": "何 誰 どこ いつ なぜ どう どうして いくら いくつ どれ どの どちら どんな だれ なに なん",
    "ro": "cine cui ce când unde cum care cărui cărei căror cât câtă câți câte oare",
}
#: Words that ask, by language.
INTERROGATIVES = {language: frozenset(words.split()) for language, words in _WORDS.items()}
#: Languages without spaces, where a word is found inside a token.
_UNSPACED = frozenset({"ja"})
_QUESTION_MARKS = frozenset("?？")
#: The particle that ends Japanese questions, before the full stop.
_PARTICLE, _STOP = "か", "。"
#: What may follow the final question mark.
_CLOSING = frozenset("\"'”’»«“)]」』")


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenMarks:
    """Marks of the tokens of one sentence, each ``(n,)``.

    Args:
        special: Tokens that no text contains.
        punctuation: Tokens without letters and digits.
        end: The last token, if special.
        words: Numbers of words, -1 for special tokens.
        rare: The rarest words' tokens.
        interrogative: Tokens of words that ask.
        question: The final question mark.
    """

    special: Array
    punctuation: Array
    end: Array
    words: Array
    rare: Array
    interrogative: Array
    question: Array


def mark_tokens(
    row: TokenRow, *, counts: Mapping[int, int], interrogatives: Iterable[str]
) -> TokenMarks:
    """Return the marks of a sentence.

    Args:
        row: Its tokens.
        counts: How often each token occurs in all sentences.
        interrogatives: Words that ask, in lower case.
    """
    special = np.array(row.is_special, dtype=bool)
    end = np.zeros(len(row), dtype=bool)
    end[-1:] = special[-1:]
    return TokenMarks(
        special=special,
        punctuation=np.array([is_punctuation(x) for x in row.text], dtype=bool) & ~special,
        end=end,
        words=np.array(row.words, dtype=np.int64),
        rare=_rarest(row, special, counts),
        interrogative=_asking(row, frozenset(interrogatives)),
        question=_question_mark(row),
    )


def _rarest(row: TokenRow, special: Array, counts: Mapping[int, int]) -> Array:
    often = np.array([counts.get(number, 0) for number in row.ids], dtype=np.int64)
    if special.all():
        return np.zeros(len(row), dtype=bool)
    return np.asarray(~special & (often == often[~special].min()))


def _asking(row: TokenRow, interrogatives: frozenset[str]) -> Array:
    def asks(text: str) -> bool:
        if is_unspaced(text):
            return any(word in text for word in interrogatives)
        return text.lower() in interrogatives

    asking = {word for word, text in row.word_texts().items() if asks(text)}
    return np.array([word in asking for word in row.words], dtype=bool)


def _question_mark(row: TokenRow) -> Array:
    found = np.zeros(len(row), dtype=bool)
    for i in reversed(range(len(row))):
        text = row.text[i]
        if row.is_special[i] or not text or set(text) <= _CLOSING | {_STOP}:
            continue
        is_mark = is_punctuation(text) and bool(set(text) & _QUESTION_MARKS)
        found[i] = is_mark or text.rstrip(_STOP).endswith(_PARTICLE)
        break
    return found


def is_question(text: str) -> bool:
    """Tell whether a text ends as questions do, quotes and brackets after it aside."""
    end = text.rstrip().rstrip("".join(_CLOSING))
    return end.endswith(tuple(_QUESTION_MARKS)) or (
        end.endswith(_STOP) and end.rstrip(f" {_STOP}").endswith(_PARTICLE)
    )


def guess_language(texts: Iterable[str]) -> str | None:
    """Return the language whose interrogatives begin the most questions; None without any."""
    hits: Counter[str] = Counter()
    for text in texts:
        if is_question(text):
            first = text.split()[0].strip("¿¡\"'„“«»?,").lower()
            for language, words in INTERROGATIVES.items():
                if language in _UNSPACED:
                    hits[language] += any(word in text for word in words)
                else:
                    hits[language] += first in words
    best = max(sorted(hits), key=lambda language: hits[language], default=None)
    return best if best is not None and hits[best] else None


def asking_words(languages: Mapping[str, str | None]) -> dict[str, frozenset[str]]:
    """Return the interrogatives of each language, by the same keys; none for None."""
    unknown = sorted({x for x in languages.values() if x is not None} - set(INTERROGATIVES))
    if unknown:
        raise ValueError(f"A language must be one of {sorted(INTERROGATIVES)}; got {unknown}.")
    return {
        key: frozenset() if language is None else INTERROGATIVES[language]
        for key, language in languages.items()
    }


def count_tokens(rows: Iterable[Iterable[int]]) -> Counter[int]:
    """Count how often each token occurs."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(row)
    return counts
