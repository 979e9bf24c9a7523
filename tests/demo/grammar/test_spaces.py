from collections import Counter
from random import Random

import pytest

from adasparse.demo.grammar.spaces import Build, OneOf, Union, maybe


@pytest.fixture
def space():
    """Eleven words: ab, ac, ad, bb … and a single x."""
    pairs = Build(lambda a, b: a + b, OneOf("ab"), OneOf("bcdef"))
    return Union((1, pairs), (3, OneOf(["x"])))


def test_the_size_is_the_number_of_choices(space):
    assert space.size == len(list(space)) == len(set(space)) == 11


def test_samples_come_from_the_space_and_reach_all_of_it(space):
    rng = Random(0)
    counts = Counter(space.sample(rng) for _ in range(4000))
    assert set(counts) == set(space)
    assert 0.7 < counts["x"] / 4000 < 0.8


def test_maybe_is_none_at_its_chance():
    rng, space = Random(0), maybe(0.3, OneOf([1, 2]))
    assert space.size == 3
    missing = sum(space.sample(rng) is None for _ in range(4000)) / 4000
    assert 0.65 < missing < 0.75


def test_only_random_itself_is_drawn_from(space):
    """Other methods of Random have changed between Python versions."""

    class Drawn(Random):
        def getrandbits(self, k):
            raise AssertionError("drawn by another method")

    assert space.sample(Drawn(0)) in set(space)


def test_empty_spaces_are_refused():
    with pytest.raises(ValueError, match="at least one item"):
        OneOf([])
    with pytest.raises(ValueError, match="at least one space"):
        Union()
