"""The plan: finished and missing pieces, and the hours that they will take."""

from collections import Counter
from collections.abc import Sequence

from benchmarks.evidence.runner import State

_STATES = ("done", "running", "begun", "missing", "failed")


def plan_table(found: Sequence[State], *, each: bool = False) -> str:
    """Return a table of experiments, or of pieces."""
    if each:
        lines = [f"{x.state:<8} {x.piece.minutes:>5.0f} min  {x.piece.name}" for x in found]
        return "\n".join(lines)
    width = max(len(x.piece.experiment) for x in found)
    lines = [f"{'experiment':<{width}} " + "".join(f"{name:>9}" for name in _STATES) + "    hours"]
    for name in dict.fromkeys(x.piece.experiment for x in found):
        lines.append(_line(name, [x for x in found if x.piece.experiment == name], width))
    return "\n".join([*lines, _line("all", found, width)])


def _line(name: str, found: Sequence[State], width: int) -> str:
    counts = Counter(x.state for x in found)
    return (
        f"{name:<{width}} "
        + "".join(f"{counts[state]:>9}" for state in _STATES)
        + f"{hours_left(found):>9.1f}"
    )


def hours_left(found: Sequence[State]) -> float:
    """Return the expected hours of all that is not done, on one thread."""
    return sum(x.piece.minutes for x in found if x.state != "done") / 60
