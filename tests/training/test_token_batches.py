from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adasparse.training import TokenBatches

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=120).map(np.array)


@given(LENGTHS, st.integers(1, 600), st.integers(0, 2**63), st.integers(0, 5))
def test_every_example_is_in_one_batch_that_fits(lengths, max_tokens, seed, epoch):
    made = TokenBatches(lengths, max_tokens=max_tokens, seed=seed)
    batches = made.epoch(epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert len(batches) == made.per_epoch == len(made)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens


@given(LENGTHS, st.integers(1, 600), st.integers(1, 40))
def test_a_training_is_epoch_after_epoch(lengths, max_tokens, num_batches):
    made = TokenBatches(lengths, max_tokens=max_tokens, seed=1, num_batches=num_batches)
    expected = [
        batch.tolist()
        for number in range(num_batches // made.per_epoch + 1)
        for batch in made.epoch(number)
    ]
    assert list(made) == expected[:num_batches]
    assert len(made) == num_batches


@given(LENGTHS, st.integers(50, 600))
def test_batches_are_filled(lengths, max_tokens):
    """Two neighbors by length never fit into one, but for the rounding of lengths."""
    batches = TokenBatches(lengths, max_tokens=max_tokens, seed=0).epoch(0)
    ordered = sorted(batches, key=lambda batch: lengths[batch].max())
    for one, two in pairwise(ordered):
        assert (len(one) + len(two)) * lengths[two].max() * 9 / 8 + 1 > max_tokens


def make(seed=0, **options):
    lengths = np.random.default_rng(0).integers(1, 40, 200)
    return TokenBatches(lengths, max_tokens=200, seed=seed, **options)


def test_the_seed_decides_the_order():
    assert list(make(1)) == list(make(1))
    assert list(make(1)) != list(make(2))


def test_epochs_differ_in_order_and_content():
    made = make()
    first, second = ({tuple(sorted(batch)) for batch in made.epoch(i)} for i in (0, 1))
    assert len(first & second) < len(first) / 2
    assert [len(x) for x in made.epoch(0)] != [len(x) for x in made.epoch(1)]


def test_more_batches_change_nothing_of_the_first():
    assert list(islice(make(num_batches=1000), 70)) == list(make(num_batches=70))


def test_a_long_example_is_alone():
    made = TokenBatches(np.array([3, 500, 3]), max_tokens=10, seed=0)
    assert sorted(sorted(batch) for batch in made) == [[0, 2], [1]]


def test_batches_share_no_lengths_but_at_their_ends():
    made = make()
    ends = sorted((made.lengths[x].min(), made.lengths[x].max()) for x in made.epoch(0))
    assert all(one[1] <= two[0] for one, two in pairwise(ends))


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "message"),
    [([], 10, "at least one example; got none"), ([1], 0, "max_tokens must be at least 1; got 0")],
)
def test_impossible_batches_are_refused(lengths, max_tokens, message):
    with pytest.raises(ValueError, match=message):
        TokenBatches(np.array(lengths), max_tokens=max_tokens, seed=0)
