import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adasparse.translation.filters import (
    REASONS,
    Filters,
    hash_pairs,
    hash_text,
    keep_first,
)


def rejected(filters, source, target):
    masks = filters.reject_tokens(np.array([source]), np.array([target]))
    return [reason for reason, mask in masks.items() if mask[0]]


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("", "x", "empty"),
        ("x", "", "empty"),
        ("x" * 11, "x", "too_many_characters"),
        ("x", "x" * 11, "too_many_characters"),
        ("x" * 10, "x" * 10, None),
    ],
)
def test_text_is_limited(source, target, reason):
    assert Filters(max_chars=10).reject_text(source, target) == reason


@pytest.mark.parametrize(
    ("source", "target", "reasons"),
    [
        (2, 11, ["too_few_tokens"]),
        (3, 3, []),
        (11, 11, []),
        (12, 11, ["too_many_tokens"]),
        (12, 3, ["too_many_tokens"]),  # one reason at most
        (9, 3, []),
        (10, 3, ["length_ratio"]),
        (3, 10, ["length_ratio"]),
    ],
)
def test_tokens_are_limited_without_the_end(source, target, reasons):
    filters = Filters(min_tokens=2, max_tokens=10, max_ratio=3.0)
    assert rejected(filters, source, target) == reasons


def test_no_limit_keeps_everything():
    filters = Filters(max_chars=None, min_tokens=0, max_tokens=None, max_ratio=None)
    assert filters.reject_text("x" * 10**6, "y") is None
    assert rejected(filters, 10**6, 1) == []


def test_reasons_are_all_known():
    masks = Filters().reject_tokens(np.array([1]), np.array([1]))
    assert set(masks) < set(REASONS)


def test_mistakes_are_told_together():
    with pytest.raises(ValueError, match=r"max_chars .* got 0; .*max_ratio .* got 0\.5\."):
        Filters(max_chars=0, max_ratio=0.5)
    with pytest.raises(ValueError, match=r"max_tokens .* min_tokens \(5\); got 4"):
        Filters(min_tokens=5, max_tokens=4)
    with pytest.raises(ValueError, match="max_ratio must be at least 1; got nan"):
        Filters(max_ratio=float("nan"))


@given(st.lists(st.integers(0, 5)))
def test_first_of_each_is_kept(values):
    keep = keep_first(np.array(values, dtype=np.uint64))
    expected = [value not in values[:row] for row, value in enumerate(values)]
    assert keep.tolist() == expected


def test_hashes_tell_sides_apart():
    first, second = (np.array([hash_text(text)], dtype=np.uint64) for text in ("a", "b"))
    hashes = [hash_pairs(x, y)[0] for x in (first, second) for y in (first, second)]
    assert len(set(hashes)) == 4
