"""Questions: interrogative words by language, final question marks, and language guessing."""

from collections import Counter
from collections.abc import Iterable, Mapping

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
#: Interrogative words by language.
INTERROGATIVES = {language: frozenset(words.split()) for language, words in _WORDS.items()}
#: Languages without spaces, where a word is found inside a token.
_UNSPACED = frozenset({"ja"})
QUESTION_MARKS = frozenset("?？")
#: The particle that ends Japanese questions, before the full stop.
PARTICLE, STOP = "か", "。"
#: Characters that may follow the final question mark.
CLOSING = frozenset("\"'”’»«“)]」』")


def is_question(text: str) -> bool:
    """Tell whether a text ends as questions do, quotes and brackets after it aside."""
    end = text.rstrip().rstrip("".join(CLOSING))
    return end.endswith(tuple(QUESTION_MARKS)) or (
        end.endswith(STOP) and end.rstrip(f" {STOP}").endswith(PARTICLE)
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


def interrogatives_of(languages: Mapping[str, str | None]) -> dict[str, frozenset[str]]:
    """Return the interrogatives of each language, by the same keys; none for None."""
    unknown = sorted({x for x in languages.values() if x is not None} - set(INTERROGATIVES))
    if unknown:
        raise ValueError(f"A language must be one of {sorted(INTERROGATIVES)}; got {unknown}.")
    return {
        key: frozenset() if language is None else INTERROGATIVES[language]
        for key, language in languages.items()
    }
