import itertools

import pytest

from adasparse.bench.timing import MIN_ROUNDS, best_times


@pytest.fixture
def clock(monkeypatch):
    """Have turns take the given seconds, one after the other."""

    def set_turns(*seconds):
        readings = itertools.chain.from_iterable((0, turn) for turn in seconds)
        monkeypatch.setattr("time.perf_counter", lambda: next(readings))

    return set_turns


def test_functions_take_turns_and_the_best_counts(clock):
    clock(0.5, 0.5, 0.5, 0.5, 5, 7, 3, 9)
    calls = []
    rounds = []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = best_times(functions, repeats=2, on_round=lambda: rounds.append(len(calls)))
    assert times == {"a": 3, "b": 7}
    assert "".join(calls) == "aabb" + "abab"
    assert rounds == [6, 8]


def test_short_functions_are_called_several_times_in_a_turn(clock, monkeypatch):
    monkeypatch.setattr("adasparse.bench.timing.MIN_TURN", 2.5)
    clock(0.5, 0.5, 20)  # half a second a call, so a turn of 2.5 takes 5 of them
    calls = []
    assert best_times({"a": lambda: calls.append("a")}, repeats=1) == {"a": 4}
    assert len(calls) == 2 + 5


@pytest.mark.parametrize(("seconds", "rounds"), [(50, 5), (4, MIN_ROUNDS), (1e9, 7)])
def test_long_functions_get_the_rounds_that_fit(clock, seconds, rounds):
    clock(*[10] * 8)
    calls = []
    best_times({"a": lambda: calls.append("a")}, repeats=7, seconds=seconds)
    assert len(calls) == 1 + rounds  # a long one warms up once


def test_no_more_rounds_than_asked_for(clock):
    clock(*[10] * 8)
    calls = []
    best_times({"a": lambda: calls.append("a")}, repeats=1, seconds=4)
    assert len(calls) == 1 + 1
