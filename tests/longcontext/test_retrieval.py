import re
from collections import Counter
from itertools import pairwise

import pytest

from adasparse.longcontext.needle import QUESTION, TEST_NAMES
from adasparse.longcontext.retrieval import NAMES, add_retrieval

TEXT = (
    "\n".join(f"Line {i} says this. It says that too! And does it ask?" for i in range(400)) + "\n"
)
FACT = re.compile(r"^The secret number of (\w+) is (\d{5})\.$", re.MULTILINE)


def _facts(text):
    return FACT.findall(text)


def test_facts_are_stated_once_and_asked_for_once_in_their_passage():
    mixed = add_retrieval(TEXT, share=1.0, passage=500)
    counts = Counter(_facts(mixed))
    assert set(counts.values()) == {2}
    for name, number in counts:
        first, second = (x.start() for x in re.finditer(f"of {name} is {number}", mixed))
        # A passage of some 550 characters, and the lines of up to four facts.
        assert second - first < 1000


def test_text_between_facts_stays_as_it_is():
    mixed = add_retrieval(TEXT, share=1.0, passage=500)
    without = FACT.sub("", mixed)
    assert without.split() == TEXT.split()
    assert add_retrieval(TEXT, share=0.0) == TEXT


def test_share_is_that_of_passages_with_facts():
    passages = len(TEXT) // 550
    mixed = add_retrieval(TEXT, share=0.5, passage=500, max_facts=1)
    assert 0.25 * passages < len(set(_facts(mixed))) < 0.75 * passages


def test_names_of_a_passage_differ_and_none_is_of_the_test():
    mixed = add_retrieval(TEXT, share=1.0, passage=10**6, max_facts=len(NAMES))
    names = [name for name, _ in set(_facts(mixed))]
    assert len(names) == len(set(names))
    assert not set(names) & set(TEST_NAMES)
    assert not any(QUESTION.format(name=name).strip() in mixed for name in TEST_NAMES)


def test_passage_ends_with_a_question():
    for seed in range(20):
        mixed = add_retrieval("One. Two. Three.\n", share=1.0, seed=seed)
        assert FACT.fullmatch(mixed.splitlines()[-1])
        assert mixed.endswith(".\n")


def test_seed_decides_everything():
    assert add_retrieval(TEXT, seed=1) == add_retrieval(TEXT, seed=1) != add_retrieval(TEXT, seed=2)


def test_texts_without_sentences_are_taken():
    assert add_retrieval("", share=1.0) == ""
    assert len(_facts(add_retrieval("word", share=1.0, max_facts=1))) == 2


def test_facts_are_asked_for_as_often_as_wanted_after_they_are_stated():
    mixed = add_retrieval(TEXT, share=1.0, passage=500, questions=3)
    assert set(Counter(_facts(mixed)).values()) == {4}
    assert FACT.sub("", mixed).split() == TEXT.split()


def test_a_share_of_the_names_is_invented():
    mixed = add_retrieval(TEXT * 5, share=1.0, max_facts=8, passage=500, invented=0.5)
    names = [name for name, _ in set(_facts(mixed))]
    others = {name for name in names if name not in NAMES}
    assert sum(name in others for name in names) / len(names) == pytest.approx(0.5, abs=0.1)
    assert len(others) > 100
    assert not others & set(TEST_NAMES)
    assert all(re.fullmatch("[A-Z][a-z]+", name) for name in others)
    assert set(Counter(_facts(mixed)).values()) == {2}
    every = add_retrieval(TEXT, share=1.0, passage=500, invented=1.0)
    assert not any(name in NAMES for name, _ in _facts(every))
    assert FACT.sub("", every).split() == TEXT.split()


def test_lengths_of_passages_differ_where_a_shortest_is_given():
    # A passage has one fact, whose question ends it.
    mixed = add_retrieval(TEXT * 5, share=1.0, max_facts=1, passage=2000, shortest=100)
    ends = [mixed.rindex(f"of {name} is {number}") for name, number in set(_facts(mixed))]
    ends.sort()
    sizes = [end - start for start, end in pairwise(ends)]
    assert min(sizes) < 250
    assert max(sizes) > 1500
    assert sum(size < 500 for size in sizes) > 0.3 * len(sizes)


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({"share": 1.5}, "got 1.5, 4 and 1"),
        ({"max_facts": 0}, "got 0.5, 0 and 1"),
        ({"questions": 0}, "got 0.5, 4 and 0"),
        ({"passage": 0}, "got 0 and None"),
        ({"invented": -0.5}, "between 0 and 1; got -0.5"),
        ({"shortest": 2000}, "got 1500 and 2000"),
    ],
)
def test_mistakes_are_told(changes, given):
    with pytest.raises(ValueError, match=given):
        add_retrieval(TEXT, **changes)
