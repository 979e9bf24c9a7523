"""The attention benchmark: sparse attention beside softmax attention."""

from adasparse.bench import attention_cases
from adasparse.bench.results import Progress, Result, Row, Settings


def case_names() -> tuple[str, ...]:
    """Return the names of all cases, those of GPUs after the others."""
    cases = (*attention_cases.CASES, *attention_cases.GPU_CASES)
    return tuple(dict.fromkeys(case.name for case in cases))


def measure(settings: Settings, progress: Progress) -> Result:
    """Run the requested cases, and note those that cannot run here."""
    is_cpu = settings.device == "cpu"
    cases = attention_cases.CASES if is_cpu else attention_cases.GPU_CASES
    wanted = [case for case in cases if not settings.cases or case.name in settings.cases]
    rows: list[Row] = []
    known = {case.name for case in cases}
    skipped = [
        f"{name}: no case of {settings.device}" for name in settings.cases if name not in known
    ]
    for done, case in enumerate(wanted):
        progress(f"{case.name}: {case.title}", done, len(wanted))
        if obstacle := case.obstacle(settings):
            skipped.append(obstacle)
        else:
            sized = case.quick() if settings.is_quick else case
            named = {"case": case.name, "title": case.title, "shape": list(sized.shape)}
            rows += [named | row for row in sized.rows(settings)]
    return settings.result(skipped=skipped, results=rows)
