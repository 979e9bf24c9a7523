import hashlib
import re
import time
from random import Random

import pytest

from adasparse.demo.grammar import PAIRS, GeneratedCorpus, count_sentences, generate, german_english

#: Of ``generate(pair, train=300, dev=20, test=20, seed=7)``: the same bytes everywhere.
DIGESTS = {
    "de-en": "3c2221d580a50226",
    "en-de": "d1e6ee7d407b2ca3",
}


def digest(corpus: GeneratedCorpus) -> str:
    lines = [f"{a}\t{b}" for part in (corpus.train, corpus.dev, corpus.test) for a, b in part]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.fixture(scope="module", params=PAIRS)
def corpus(request):
    return generate(request.param, train=6000, dev=300, test=300, seed=3)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_same_seed_gives_the_same_bytes(pair):
    assert digest(generate(pair, train=300, dev=20, test=20, seed=7)) == DIGESTS[pair]


@pytest.mark.parametrize("pair", PAIRS)
def test_another_seed_gives_other_sentences(pair):
    first = set(generate(pair, train=300, dev=0, test=0, seed=0).train)
    second = set(generate(pair, train=300, dev=0, test=0, seed=1).train)
    assert len(first & second) < 60


def test_sizes_and_languages_are_as_asked(corpus):
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (6000, 300, 300)
    assert f"{corpus.source_lang}-{corpus.target_lang}" in PAIRS


def test_no_sentence_occurs_twice_on_either_side(corpus):
    pairs = corpus.train + corpus.dev + corpus.test
    assert len({source for source, _ in pairs}) == len(pairs)
    assert len({target for _, target in pairs}) == len(pairs)


def test_dev_and_test_do_not_depend_on_the_size_of_train(corpus):
    pair = f"{corpus.source_lang}-{corpus.target_lang}"
    smaller = generate(pair, train=10, dev=300, test=300, seed=3)
    assert (smaller.dev, smaller.test) == (corpus.dev, corpus.test)
    assert smaller.train == corpus.train[:10]


def test_sentences_are_clean(corpus):
    for pair in corpus.train:
        for text in pair:
            assert text == text.strip() and "  " not in text
            assert not re.search(r" [.,?]|,,|,[.?]|[\t\n]|None|_", text), text
            assert text[-1] in ".?" and not text[0].islower(), text
            assert not re.search(r"\d", text), text


def test_questions_are_questions_on_both_sides(corpus):
    questions = [pair for pair in corpus.train if pair[0].endswith("?")]
    assert all(a.endswith("?") == b.endswith("?") for a, b in corpus.train)
    assert 0.05 < len(questions) / len(corpus.train) < 0.4


def test_sentences_have_the_length_of_sentences():
    pairs = generate("de-en", train=4000, dev=0, test=0).train
    lengths = sorted(len(source.split()) for source, _ in pairs)
    assert 7 < sum(lengths) / len(lengths) < 10
    assert lengths[int(0.99 * len(lengths))] <= 18


def test_german_and_english_sentences_correspond_one_to_one():
    sample_many(50000)


@pytest.mark.slow
def test_sentences_correspond_one_to_one_in_a_large_sample():
    sample_many(300000)


def sample_many(number: int) -> None:
    """Draw with repetition: the generator of corpora would hide a second translation."""
    rng, space = Random(11), german_english.sentences()
    targets: dict[str, str] = {}
    sources: dict[str, str] = {}
    for _ in range(number):
        source, target = space.sample(rng)
        assert targets.setdefault(source, target) == target
        assert sources.setdefault(target, source) == source


def test_a_small_vocabulary_says_a_lot():
    pairs = generate("de-en", train=5000, dev=0, test=0).train
    german = {word.strip(".,?") for source, _ in pairs for word in source.split()}
    english = {word.strip(".,?") for _, target in pairs for word in target.split()}
    assert 800 < len(german) < 2500 and 400 < len(english) < 1000
    assert any(len(word) > 25 for word in german)  # words to split


def test_the_grammar_spans_more_than_any_corpus():
    assert count_sentences("de-en") == count_sentences("en-de") > 10**20


def test_english_to_german_is_german_to_english_reversed():
    forward = generate("de-en", train=50, dev=5, test=5, seed=2)
    backward = generate("en-de", train=50, dev=5, test=5, seed=2)
    assert backward.train == [(b, a) for a, b in forward.train]


def test_twenty_thousand_sentences_take_seconds():
    start = time.process_time()
    generate("de-en")
    assert time.process_time() - start < 10


@pytest.mark.parametrize("pair", ["de-fr", "ro-en", "ja-en"])
def test_an_unknown_pair_is_refused(pair):
    with pytest.raises(ValueError, match=f"one of de-en, en-de; got '{pair}'"):
        generate(pair)


@pytest.mark.parametrize("name", ["train", "dev", "test", "seed"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "3"])
def test_sizes_are_whole_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 0; got"):
        generate("de-en", **{name: value})


def test_more_than_the_grammar_has_is_refused():
    wanted = 10 * count_sentences("de-en")
    with pytest.raises(ValueError, match=f"sentences of de-en, which are .*; got {wanted:,}"):
        generate("de-en", train=wanted, dev=0, test=0)


def test_nothing_wanted_is_nothing_given():
    corpus = generate("de-en", train=0, dev=0, test=0)
    assert corpus.train == corpus.dev == corpus.test == []
