"""The attention benchmark: sparse attention beside softmax attention."""

from adasparse.bench import attention_cases
from adasparse.bench.results import Progress, Result, Row, Settings


def case_names() -> tuple[str, ...]:
    """Return the names of all cases."""
    return tuple(case.name for case in attention_cases.CASES)


def measure(settings: Settings, progress: Progress) -> Result:
    """Run the requested cases, and note those that cannot run here."""
    requested = settings.cases or case_names()
    wanted = [case for case in attention_cases.CASES if case.name in requested]
    rows: list[Row] = []
    skipped: list[str] = []
    for done, case in enumerate(wanted):
        progress(f"{case.name}: {case.title}", done, len(wanted))
        if obstacle := case.obstacle():
            skipped.append(obstacle)
        else:
            sized = case.quick() if settings.is_quick else case
            named = {"case": case.name, "title": case.title, "shape": list(sized.shape)}
            rows += [named | row for row in sized.rows(settings)]
    return settings.result(skipped=skipped, results=rows)
