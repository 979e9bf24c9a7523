"""Fair timing: functions take turns, and the best of several rounds counts."""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from adasparse.bench.devices import seconds_per_call

Key = TypeVar("Key", bound=Hashable)

#: A turn lasts at least this many seconds, by calling a short function several times.
MIN_TURN = 0.005
#: A call of more seconds than this needs no second one to be known as long.
LONG_CALL = 1.0
#: However long the functions take, they get this many rounds if asked for.
MIN_ROUNDS = 3


def best_times(
    functions: Mapping[Key, Callable[[], object]],
    *,
    repeats: int,
    seconds: float = math.inf,
    on_round: Callable[[], object] | None = None,
    device: str = "cpu",
) -> dict[Key, float]:
    """Seconds per call of each function, measured side by side.

    In each round every function has its turn, so a disturbance of the machine meets all of them;
    the best turn of each is the one that was disturbed least. Two calls beforehand (or one, if
    long), not counted, warm up and decide how many calls fill a turn.

    Args:
        functions: Functions to time, by any key.
        repeats: Number of rounds.
        seconds: Time limit for all rounds: long functions get fewer of them.
        on_round: Called after each round, for a progress bar.
        device: Where the functions run; GPUs are timed by their own clock.
    """
    calls, expected = {}, 0.0
    for key, function in functions.items():
        once = seconds_per_call(function, 1, device)
        if once < LONG_CALL:
            once = seconds_per_call(function, 1, device)
        calls[key] = max(1, round(MIN_TURN / max(once, 1e-6)))
        expected += calls[key] * once
    affordable = seconds / max(expected, 1e-6)
    best = dict.fromkeys(functions, math.inf)
    for _ in range(int(min(repeats, max(affordable, MIN_ROUNDS)))):
        for key, function in functions.items():
            best[key] = min(best[key], seconds_per_call(function, calls[key], device))
        if on_round:
            on_round()
    return best
