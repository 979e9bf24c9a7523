"""The decoding benchmark: single queries against many keys, beside softmax attention."""

from adasparse.bench import decode_cases
from adasparse.bench.decode_cases import Case
from adasparse.bench.decode_models import GenerationCase, TrainedCase
from adasparse.bench.results import Progress, Result, Row, Settings

MODEL_CASES: tuple[Case, ...] = (GenerationCase(bar=2.0), TrainedCase())


def all_cases() -> tuple[Case, ...]:
    """Return all cases in order."""
    return (*decode_cases.TIMED_CASES, *MODEL_CASES)


def case_names() -> tuple[str, ...]:
    """Return the names of all cases."""
    return tuple(case.name for case in all_cases())


def measure(settings: Settings, progress: Progress) -> Result:
    """Run the requested cases, and note those that cannot run here."""
    wanted = [case for case in all_cases() if case.name in (settings.cases or case_names())]
    rows: list[Row] = []
    skipped: list[str] = []
    for done, case in enumerate(wanted):
        progress(f"{case.name}: {case.title}", done, len(wanted))
        if obstacle := case.obstacle(settings):
            skipped.append(obstacle)
        else:
            sized = case.quick() if settings.is_quick else case
            named = {"case": case.name, "title": case.title, "shape": list(sized.shape)}
            rows += [named | row for row in sized.rows(settings)]
    return settings.result(skipped=skipped, results=rows)
