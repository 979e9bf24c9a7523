"""The tables of results in the README."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.evidence.report.earlier import NAMES as VARIANTS
from benchmarks.evidence.report.language import LanguageResults
from benchmarks.evidence.report.logs import Log, by_run
from benchmarks.evidence.report.longcontext import ORDER
from benchmarks.evidence.report.pretrained import CONTROL, SUBJECTS, difference_to_control
from benchmarks.evidence.report.tables import cell, spoken, table
from benchmarks.evidence.report.tasks import NAMES as METHODS
from benchmarks.evidence.report.tasks import TITLES, TaskResults

_SPARSE = "fixed"
_CORPUS, _PAIR = "multi30k", "de-en"
#: Multiples of the training length that are shown of every task.
_FACTORS = (1, 2, 4, 16)
#: Lengths that are shown of language models.
_LENGTHS = (512, 4096, 16384)

Logs = Mapping[str, Sequence[Log]]


def with_tables(text: str, logs: Logs, earlier: Path) -> str:
    """Return the text of the README with each table between its markers.

    Args:
        text: The README.
        logs: Logs by experiment.
        earlier: Folder of the folders of earlier runs, with one seed each.
    """
    text = _between(text, "pretrained", _pretrained(logs))
    text = _between(text, "language", _language(logs))
    text = _between(text, "translation", _translation(logs, earlier / "translation"))
    return _between(text, "long-context", _long_context(logs, earlier / "longcontext"))


def _between(text: str, name: str, lines: Sequence[str]) -> str:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise RuntimeError(f"The README must have the markers {begin} and {end}.")
    return "\n".join([before + begin, *lines, end + after])


def _pretrained(logs: Logs) -> list[str]:
    """Return the first measure of each model that was fine-tuned with its control."""
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


def _translation(logs: Logs, earlier: Path) -> list[str]:
    """Return BLEU of the variants, of earlier runs where there are no logs."""
    runs = by_run(logs[_CORPUS]) if _CORPUS in logs else {}
    if not runs:
        paths = {name: earlier / f"{_PAIR}-{name}.json" for name in VARIANTS}
        runs = {name: [json.loads(x.read_text(encoding="utf-8"))] for name, x in paths.items()}
    tests = list(next(iter(runs.values()))[0]["tests"])
    rows = [
        [
            label,
            str(len(runs[name])),
            *(cell([log["tests"][test]["bleu"] for log in runs[name]], digits=2) for test in tests),
        ]
        for name, label in VARIANTS.items()
        if name in runs
    ]
    return table(["attention", "seeds", *tests], rows)


def _long_context(logs: Logs, earlier: Path) -> list[str]:
    """Return exact match of every task, of earlier runs until all methods have been run anew."""
    rows = []
    for name in ORDER:
        seeds, found = _task(TaskResults(name, logs[name])) if name in logs else ("", {})
        if len(found) < len(METHODS):
            seeds, found = "1, short", _earlier_task(earlier / f"{name}.json")
        cells = [" / ".join(f"{x:.0f}" for x in found[x]) if x in found else "" for x in METHODS]
        rows.append([TITLES.get(name, name.capitalize()), seeds, *cells])
    return table(["task", "seeds", *METHODS.values()], rows)


def _language(logs: Logs) -> list[str]:
    """Return needles and perplexity of every language model."""
    results = LanguageResults(logs["language"])
    shown = [x for x in _LENGTHS if x in results.lengths]
    head = ["attention", *(f"needles at {x:,}" for x in shown)]
    head += [f"perplexity at {x:,}" for x in (shown[0], shown[-1])]
    rows = [
        [
            method,
            *(cell(results.found(method, x), unit="%") for x in shown),
            *(cell(results.perplexity(method, x), digits=1) for x in (shown[0], shown[-1])),
        ]
        for method in results.runs
    ]
    return table(head, rows)


def _task(results: TaskResults) -> tuple[str, dict[str, list[float]]]:
    """Return the number of seeds, and the means of each method by ``_FACTORS``."""
    names = {method: f"{label}, NAPE" for method, label in METHODS.items()}
    names = {method: name for method, name in names.items() if name in results.best}
    counts = [len(results.runs[results.best[name]]) for name in names.values()]
    low, high = min(counts, default=0), max(counts, default=0)
    seeds = str(low) if low == high else f"{low} to {high}"
    return seeds, {
        method: [mean(results.best_values(name, x)) for x in _FACTORS]
        for method, name in names.items()
    }


def _earlier_task(path: Path) -> dict[str, list[float]]:
    found = {}
    for result in json.loads(path.read_text(encoding="utf-8")):
        exact = {x["length"]: 100 * x["exact_match"] for x in result["scores"]}
        if result["positions"] == "nape":
            lengths = [x * result["train_length"] for x in _FACTORS]
            found[result["attention"]] = [exact.get(x, 0.0) for x in lengths]
    return found
