"""Which tokens make up which word."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from adasparse.translation.tokenizer import BYTES, SPACE

__all__ = ["Word", "word_clusters"]

_BYTE_VALUES = {token: value for value, token in enumerate(BYTES)}
#: What may join two parts of a word, and which of it is a hyphen.
HYPHENS, APOSTROPHES = "-\u2010\u2011", "'\u2019"


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word and its tokens.

    Args:
        start: Its first token.
        stop: The token after its last.
        text: The word itself.
        is_hyphenated: Whether a hyphen joins its parts.
    """

    start: int
    stop: int
    text: str
    is_hyphenated: bool

    def __len__(self) -> int:
        return self.stop - self.start


def word_clusters(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> list[Word]:
    """Words among the tokens of a sentence, from the first to the last.

    A word is letters and digits without white space between them; hyphens and apostrophes inside
    join it, other punctuation and special tokens are in no word. ``len(word)`` is its number of
    tokens. Where a language writes no spaces, everything between punctuation is one word.

    Args:
        tokenizer: From a prepared folder.
        ids: Token ids of one sentence.
    """
    special = set(tokenizer.all_special_ids)
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    marked = [
        None if token_id in special else token for token_id, token in zip(ids, tokens, strict=True)
    ]
    words: list[Word] = []
    parts: list[_Unit] = []
    for unit in [*_units(marked), _Unit(None, len(ids), len(ids))]:
        if parts and not unit.continues:
            words += _finish(parts)
            parts = []
        if unit.is_word or unit.text == SPACE or parts:
            parts.append(unit)
    return words


@dataclass(frozen=True)
class _Unit:
    """A token, or the bytes of one character; without text if special."""

    text: str | None
    start: int
    stop: int

    @property
    def bare(self) -> str:
        return (self.text or "").removeprefix(SPACE)

    @property
    def is_word(self) -> bool:
        return any(char.isalnum() or unicodedata.category(char)[0] == "M" for char in self.bare)

    @property
    def continues(self) -> bool:
        """Whether it can be a further part of a word that has begun."""
        is_joint = self.text is not None and self.text in (*HYPHENS, *APOSTROPHES)
        return is_joint or (self.is_word and self.bare == self.text)


def _finish(parts: list[_Unit]) -> list[Word]:
    """The word of these parts without joints at its ends; none if there are only joints."""
    while parts and not parts[-1].is_word:
        parts = parts[:-1]
    while parts and not (
        parts[0].is_word or (parts[0].text == SPACE and len(parts) > 1 and parts[1].is_word)
    ):
        parts = parts[1:]
    if not parts:
        return []
    return [
        Word(
            start=parts[0].start,
            stop=parts[-1].stop,
            text="".join(part.bare for part in parts),
            is_hyphenated=any(part.text in HYPHENS for part in parts if part.text),
        )
    ]


def _units(tokens: Sequence[str | None]) -> Iterator[_Unit]:
    """Tokens one by one, but the bytes of a character together."""
    pending = bytearray()
    for position, token in enumerate(tokens):
        byte = _BYTE_VALUES.get(token or "")
        if byte is None:
            pending.clear()  # bytes of no character
            yield _Unit(token, position, position + 1)
            continue
        pending.append(byte)
        try:
            text = pending.decode()
        except UnicodeDecodeError:
            if len(pending) == 4:
                pending.clear()
            continue
        yield _Unit(text, position + 1 - len(pending), position + 1)
        pending.clear()
