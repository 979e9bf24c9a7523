"""The attention benchmark: sparse attention beside softmax attention."""

from adasparse.bench import attention_cases
from adasparse.bench.case import measure_cases
from adasparse.bench.results import Progress, Result, Settings


def case_names() -> tuple[str, ...]:
    """Return the names of all cases, those of GPUs after the others."""
    cases = (*attention_cases.CASES, *attention_cases.GPU_CASES)
    return tuple(dict.fromkeys(case.name for case in cases))


def measure(settings: Settings, progress: Progress) -> Result:
    """Run the requested cases, and note those that cannot run here."""
    is_cpu = settings.device == "cpu"
    cases = attention_cases.CASES if is_cpu else attention_cases.GPU_CASES
    known = {case.name for case in cases}
    skipped = [
        f"{name}: no case of {settings.device}" for name in settings.cases if name not in known
    ]
    return measure_cases(cases, settings, progress, skipped)
