"""The decoding benchmark: single queries against many keys, beside softmax attention."""

from adasparse.bench import decode_cases
from adasparse.bench.case import Case, measure_cases
from adasparse.bench.decode_models import GenerationCase, TrainedCase
from adasparse.bench.results import Progress, Result, Settings

MODEL_CASES: tuple[Case, ...] = (GenerationCase(bar=2.0), TrainedCase())


def all_cases() -> tuple[Case, ...]:
    """Return all cases in order."""
    return (*decode_cases.TIMED_CASES, *MODEL_CASES)


def case_names() -> tuple[str, ...]:
    """Return the names of all cases."""
    return tuple(case.name for case in all_cases())


def measure(settings: Settings, progress: Progress) -> Result:
    """Run the requested cases, and note those that cannot run here."""
    return measure_cases(all_cases(), settings, progress)
