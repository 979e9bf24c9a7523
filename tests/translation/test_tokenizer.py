import json
import unicodedata

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from adasparse.translation.tokenizer import MIN_VOCAB_SIZE, clean_text, train_tokenizer

TEXTS = [
    "Der kleine Hund läuft schnell über die grüne Wiese.",
    "The small dog runs quickly across the green meadow.",
    "Dreiundzwanzig rote Autos, zwei T-Shirts und ein Haus?",
    "Twenty-three red cars, two T-shirts and a house?",
    "Markup: </s> <pad> <unk> <0x41> <0x41> </s> </s> ▁ ▁▁x",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=600)


@pytest.fixture(scope="module")
def raw_tokenizer():
    return train_tokenizer(TEXTS, vocab_size=600, normalize=False)


def round_trip(tokenizer, text):
    return tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)


def test_special_tokens_come_first(tokenizer):
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)


def test_sentences_end(tokenizer):
    encoded = tokenizer(["Hund", ""], text_target=["dog", ""])
    assert all(ids[-1] == 1 for ids in encoded["input_ids"] + encoded["labels"])
    assert encoded["input_ids"][1] == [1]
    assert set(encoded) == {"input_ids", "attention_mask", "labels"}


@pytest.mark.parametrize(
    "text",
    [
        *TEXTS[:5],
        "</s>",
        "<pad><pad> a</s>",
        "<unk>",
        "<0x41>",
        "<0x0A> <0xE2><0x96><0x81>",
        "▁a▁ ▁",
        "👨‍👩‍👧 你好，世界 Ελλάδα",
        "a - b -- c ... (d) \"e\" 'f'",
        "100.000,50 € §3",
        "don't l'homme x_y a/b http://a.b/?c=d&e=f",
        "Straße ﬀ ½ ②",
        "",
    ],
)
def test_text_comes_back(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert not {0, 1} & set(ids[:-1])
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@given(st.text(max_size=40))
def test_any_text_comes_back_normalized(tokenizer, text):
    cleaned = clean_text(text)
    assert round_trip(tokenizer, text) == cleaned
    assert clean_text(cleaned) == cleaned


@given(st.text(st.sampled_from(" ▁<>/s0x41\x1a_.pad\u0301e\n"), max_size=20))
def test_without_normalizing_text_comes_back_exactly(raw_tokenizer, text):
    assert round_trip(raw_tokenizer, text) == text


def test_text_is_cleaned():
    assert clean_text(" a\t\u3000b\u2028\x85c\xa0 ") == "a b c"
    assert clean_text("x\x00\x07\ufeffy\x7f\x9f") == "xy"
    assert clean_text("e\x01\u0301") == "é"
    assert clean_text(" \x01 ") == ""
    assert clean_text("👨\u200d👩 \u00adx") == "👨\u200d👩 \u00adx"  # joiners and soft hyphens stay
    decomposed = unicodedata.normalize("NFD", "Müßiggänge ệ")
    assert clean_text(decomposed) == "Müßiggänge ệ"


def test_markup_in_a_corpus_becomes_no_token(tokenizer):
    vocabulary = tokenizer.get_vocab()
    learned = [token for token, index in vocabulary.items() if index >= 259]
    assert not [token for token in learned if "<" in token and len(token.strip("▁<>/")) > 0]


def test_words_and_punctuation_do_not_merge(tokenizer):
    tokens = tokenizer.tokenize("über die grüne Wiese. Dreiundzwanzig Autos,")
    assert tokens == [
        *("▁über", "▁die", "▁grüne", "▁Wiese", "."),
        *("▁Dreiundzwanzig", "▁Autos", ","),
    ]


def test_folder_needs_transformers_alone(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert hasattr(transformers, settings["tokenizer_class"])
    assert "auto_map" not in settings
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    loaded, text = AutoTokenizer.from_pretrained(tmp_path), "Hunde 🐶 </s> ▁ <0x41>"
    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert round_trip(loaded, text) == text


def test_saving_again_changes_nothing(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "a")
    again = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert again.split_special_tokens
    again.save_pretrained(tmp_path / "b")
    names = "a/tokenizer.json", "b/tokenizer.json"
    first, second = ((tmp_path / name).read_bytes() for name in names)
    assert first == second
    assert round_trip(AutoTokenizer.from_pretrained(tmp_path / "b"), "</s>") == "</s>"


def test_the_same_texts_give_the_same_tokenizer(tokenizer):
    texts = [*reversed(TEXTS)]  # counts decide, not the order
    again = train_tokenizer(texts, vocab_size=600)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_rare_characters_are_bytes_and_frequent_ones_are_not():
    texts = ["字" * 50 + "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))] + ["a b c"] * 10_000
    tokenizer = train_tokenizer(texts, vocab_size=MIN_VOCAB_SIZE)
    assert len(tokenizer) <= MIN_VOCAB_SIZE
    assert len(tokenizer.tokenize("a字")) == 2
    assert tokenizer.tokenize("a\u5000")[-3:] == ["<0xE5>", "<0x80>", "<0x80>"]


def test_a_small_corpus_has_fewer_tokens():
    assert len(train_tokenizer(["ab ab"], vocab_size=1000)) < 270


def test_what_occurs_once_is_not_merged():
    tokens = train_tokenizer(["ab ab once"], vocab_size=1000).tokenize("ab once")
    assert tokens == ["▁ab", "▁", "o", "n", "c", "e"]


def test_a_vocabulary_needs_room():
    with pytest.raises(ValueError, match=r"at least 518 .* got 517"):
        train_tokenizer(TEXTS, vocab_size=517)
