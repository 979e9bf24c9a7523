"""Tokens as people read them: their text, which are special, and which form one word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Family = Literal["metaspace", "bytes", "wordpiece", "suffix", "end", "none"]

#: Marks of words in the vocabularies of each family of tokenizers.
_MARKS: dict[Family, str] = {
    "metaspace": "▁",  # before the first piece of a word
    "bytes": "Ġ",  # a space, before the first piece
    "wordpiece": "##",  # before the other pieces
    "suffix": "@@",  # after all pieces but the last
    "end": "</w>",  # after the last piece
}
_HYPHENS = frozenset("-‐‑–")
_APOSTROPHES = frozenset("'’")
#: Replacement for an undecodable part of a character.
_BROKEN = "\ufffd"


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """The tokens of a sentence.

    Args:
        ids: Their numbers.
        tokens: As the tokenizer shows them, except that bytes are decoded.
        text: Without marks of word boundaries.
        is_special: Whether each is a token that no text contains, such as the end of a sentence.
        words: The number of the word that each is a piece of, from 0 on; -1 for special tokens.
            Hyphenated words are one; a punctuation mark is a word.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    text: tuple[str, ...]
    is_special: tuple[bool, ...]
    words: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def word_texts(self) -> dict[int, str]:
        """Return the text of each word, by number."""
        found: dict[int, str] = {}
        for word, text in zip(self.words, self.text, strict=True):
            if word >= 0:
                found[word] = found.get(word, "") + text
        return found


@dataclass(frozen=True)
class _Piece:
    token: str
    text: str
    is_special: bool
    begins: bool
    ends: bool
    #: Whether it belongs to the words on both sides, as far as the tokenizer tells.
    joins: bool = False


class TokenReader:
    """Reads tokens by their numbers, for one tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = set(tokenizer.all_special_ids)
        self.family = _family(tokenizer)
        self._known: dict[int, _Piece] = {}

    def read(self, ids: Sequence[int]) -> TokenRow:
        """Return what is to be known of these tokens."""
        pieces = [self._piece(int(i)) for i in ids]
        return TokenRow(
            ids=tuple(int(i) for i in ids),
            tokens=tuple(piece.token for piece in pieces),
            text=tuple(piece.text for piece in pieces),
            is_special=tuple(piece.is_special for piece in pieces),
            words=tuple(_words(pieces)),
        )

    def _piece(self, number: int) -> _Piece:
        if number not in self._known:
            self._known[number] = self._read_piece(number)
        return self._known[number]

    def _read_piece(self, number: int) -> _Piece:
        token = str(self.tokenizer.convert_ids_to_tokens(number))
        if number in self.special:
            return _Piece(token, token, True, True, True)
        begins = ends = False
        text = token
        if self.family == "metaspace":
            begins, text = token.startswith("▁"), token.replace("▁", " ").strip()
        elif self.family == "bytes":
            begins = token.startswith(("Ġ", "Ċ", "ĉ"))
            decoded = self.tokenizer.decode([number])
            text = token if _BROKEN in decoded else decoded.strip()
            token = token if _BROKEN in decoded else ("▁" if begins else "") + text
        elif self.family == "wordpiece":
            # A hyphen is not told from a dash here: it joins what is around it.
            begins, text = not token.startswith("##"), token.removeprefix("##")
            return _Piece(token, text, False, begins, False, joins=text in _HYPHENS)
        elif self.family == "suffix":
            ends, text = not token.endswith("@@"), token.removesuffix("@@")
        elif self.family == "end":
            ends, text = token.endswith("</w>"), token.removesuffix("</w>")
        else:
            begins = ends = True
        return _Piece(token, text, False, begins, ends)


def _family(tokenizer: Any) -> Family:
    """Tell by the vocabulary how word boundaries are marked."""
    vocabulary = tokenizer.get_vocab()
    counts: dict[Family, int] = dict.fromkeys(_MARKS, 0)
    for token in vocabulary:
        for family, mark in _MARKS.items():
            is_after = family in ("suffix", "end")
            counts[family] += token.endswith(mark) if is_after else token.startswith(mark)
    best = max(counts, key=lambda family: counts[family])
    return best if counts[best] else "none"


def is_punctuation(text: str) -> bool:
    """Tell whether a token has neither letters nor digits, but something."""
    return bool(text) and not any(character.isalnum() for character in text)


def is_unspaced(text: str) -> bool:
    """Tell whether a token is of a script that puts no spaces between words."""
    return any(
        "\u3040" <= c <= "\u30ff" or "\u3400" <= c <= "\u9fff" or "\u0e00" <= c <= "\u0e7f"
        for c in text
    )


def _words(pieces: list[_Piece]) -> list[int]:
    """Number the words, joining what spaces, hyphens and apostrophes do not part."""
    numbers: list[int] = []
    word = -1
    before: _Piece | None = None
    for piece in pieces:
        if piece.is_special:
            numbers.append(-1)
            before = None
            continue
        if before is None or not _continues(before, piece):
            word += 1
        numbers.append(word)
        before = piece
    return numbers


def _continues(before: _Piece, piece: _Piece) -> bool:
    """Tell whether a piece belongs to the word of the one before."""
    if is_unspaced(before.text) or is_unspaced(piece.text):
        return False
    if (piece.begins or before.ends) and not (piece.joins or before.joins):
        return False
    return all(
        not is_punctuation(x.text) or x.text in _HYPHENS | _APOSTROPHES for x in (before, piece)
    )
