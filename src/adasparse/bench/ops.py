"""The operator benchmark: entmax and its loss beside softmax and cross entropy."""

import itertools
from collections.abc import Iterator
from functools import partial

from adasparse.bench import calls, ops_cases
from adasparse.bench.results import Progress, Result, Row, Settings
from adasparse.bench.timing import best_times


def measure(settings: Settings, progress: Progress) -> Result:
    """Time every comparison; one row for each alpha of each."""
    compared = list(ops_cases.operators(is_quick=settings.is_quick, seed=settings.seed))
    rows: list[Row] = []
    done, total = itertools.count(1), len(compared) * settings.rounds
    for case in compared:
        what = f"{case.operator} against {case.baseline}, {case.shape}, {case.direction}"
        times = best_times(
            {"baseline": case.known, **case.ours},
            repeats=settings.rounds,
            on_round=partial(_advance, progress, what, done, total),
        )
        baseline = times.pop("baseline")
        rows += [
            {
                "operator": case.operator,
                "alpha": alpha,
                "baseline": case.baseline,
                "shape": list(case.shape),
                "direction": case.direction,
                "ms": 1000 * seconds,
                "baseline_ms": 1000 * baseline,
                "ratio": baseline / seconds,
            }
            for alpha, seconds in times.items()
        ]
    skipped = [] if calls.has_entmax_package() else [calls.PACKAGE_MISSING]
    return settings.result(skipped=skipped, results=rows)


def _advance(progress: Progress, what: str, done: Iterator[int], total: int) -> None:
    progress(what, next(done), total)
