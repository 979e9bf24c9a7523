"""The summary of pretrained models in the README."""

from collections.abc import Mapping, Sequence

from benchmarks.evidence.report.logs import Log, by_run
from benchmarks.evidence.report.pretrained import CONTROL, SUBJECTS, difference_to_control
from benchmarks.evidence.report.tables import cell, spoken, table

BEGIN, END = "<!-- pretrained:begin -->", "<!-- pretrained:end -->"
_SPARSE = "fixed"


def with_summary(text: str, logs: Mapping[str, Sequence[Log]]) -> str:
    """Return the text of the README with the table between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise RuntimeError(f"The README must have the markers {BEGIN} and {END}.")
    return "\n".join([before + BEGIN, *summary(logs), END + after])


def summary(logs: Mapping[str, Sequence[Log]]) -> list[str]:
    """Return the table: the first measure of each model that was fine-tuned with its control."""
    rows = []
    for name, subject in SUBJECTS.items():
        runs = by_run(logs.get(f"{name}-finetune", []))
        if not {CONTROL, _SPARSE} <= runs.keys():
            continue
        measure = subject.measures[0]
        scores = [
            cell([log["final"][measure.key] for log in runs[run]], digits=measure.digits)
            for run in (CONTROL, _SPARSE)
        ]
        difference = spoken(difference_to_control(subject, _SPARSE, runs), digits=measure.digits)
        density = cell([100 * log["heads"]["mean"] for log in runs[_SPARSE]], digits=1, unit="%")
        rows.append([subject.title, measure.title, *scores, difference, density])
    head = ["model", "measure", "softmax", "α = 1.5", "difference", "density"]
    return table(head, rows, left=2)
