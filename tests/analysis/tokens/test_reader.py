"""Tokens are read as people read them."""

import pytest

from adasparse.analysis import TokenReader
from support.sample_models import tokenizer
from support.token_rows import from_tokens


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("▁the", "▁blow", "ing", "▁wind", ".", "</s>"), (0, 1, 1, 2, 3, -1)),
        (("▁well", "-", "known", "▁dog", "'", "s"), (0, 0, 0, 1, 1, 1)),
        (("▁a", "▁-", "▁b", "(", "c", ")"), (0, 1, 2, 3, 4, 5)),
        (("▁犬", "は", "走", "る", "。"), (0, 1, 2, 3, 4)),
        (("the", "blow", "##ing", "well", "-", "known", "."), (0, 1, 1, 2, 2, 2, 3)),
        (("the", "blo@@", "w@@", "ing", "."), (0, 1, 1, 1, 2)),
        (("the</w>", "blo", "w</w>", "ing</w>", ".</w>"), (0, 1, 1, 2, 3)),
        (("t", "h", "e"), (0, 1, 2)),
    ],
)
def test_pieces_of_a_word_have_its_number(tokens, words):
    assert from_tokens(*tokens).words == words


def test_marks_are_taken_off():
    row = from_tokens("▁blow", "ing", "</s>")
    assert row.tokens == ("▁blow", "ing", "</s>")
    assert row.text == ("blow", "ing", "</s>")
    assert row.is_special == (False, False, True)
    assert row.word_texts() == {0: "blowing"}


def test_bytes_are_decoded():
    made = tokenizer("bytes")
    row = TokenReader(made).read(made("Der alte Hund?")["input_ids"])
    assert "".join(row.text[:-1]) == "DeralteHund?"
    assert set(row.word_texts().values()) == {"Der", "alte", "Hund", "?"}
    assert not any("Ġ" in token for token in row.tokens)
