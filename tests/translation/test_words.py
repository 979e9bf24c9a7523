from itertools import pairwise

import pytest

from adasparse.translation.tokenizer import train_tokenizer
from adasparse.translation.words import word_clusters

TEXTS = 2 * [
    "ein kleiner Hund und eine Katze",
    "a small dog and a cat, T-shirts",
    "twenty-three (3)",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=600)


@pytest.mark.parametrize(
    ("text", "words", "hyphenated"),
    [
        ("a small dog", ["a", "small", "dog"], []),
        ("twenty-three dogs, isn't it?", ["twenty-three", "dogs", "isn't", "it"], ["twenty-three"]),
        ('" Hund " (klein).', ["Hund", "klein"], []),
        ("-5 -a- --b -- x", ["5", "a", "b", "x"], []),
        ("3-mal E\u2011Mail", ["3-mal", "E\u2011Mail"], ["3-mal", "E\u2011Mail"]),
        ("Über Ärger 日本語。 x", ["Über", "Ärger", "日本語", "x"], []),
        ("😀x y😀", ["x", "y"], []),
        ("'quoted' a's'", ["quoted", "a's"], []),
        ("</s> ▁", ["s"], []),
        ("", [], []),
    ],
)
def test_words_are_those_of_the_text(tokenizer, text, words, hyphenated):
    ids = tokenizer(text)["input_ids"]
    found = word_clusters(tokenizer, ids)
    assert [word.text for word in found] == words
    assert [word.text for word in found if word.is_hyphenated] == hyphenated
    assert [tokenizer.decode(ids[word.start : word.stop]) for word in found] == words
    assert all(first.stop <= second.start for first, second in pairwise(found))


def test_size_is_the_number_of_tokens(tokenizer):
    ids = tokenizer("Hund Ωx")["input_ids"]
    hund, other = word_clusters(tokenizer, ids)
    assert len(hund) == 1
    assert len(other) == 4  # the space, two bytes and a letter
    assert other.stop == len(ids) - 1


def test_padding_is_in_no_word(tokenizer):
    ids = [*tokenizer("a dog")["input_ids"], 0, 0]
    assert word_clusters(tokenizer, ids) == word_clusters(tokenizer, ids[:-2])


def test_bytes_of_no_character_are_in_no_word(tokenizer):
    ids = tokenizer.convert_tokens_to_ids(["<0xE5>", "▁dog", "<0x80>", "<0xC3>", "<0xA9>"])
    assert [(word.text, word.start, word.stop) for word in word_clusters(tokenizer, ids)] == [
        ("dog", 1, 2)
    ]
