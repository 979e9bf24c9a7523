"""The page on long contexts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.report.earlier_longcontext import earlier_sections
from benchmarks.evidence.report.language import LanguageResults, language_section
from benchmarks.evidence.report.logs import Log
from benchmarks.evidence.report.notes import notes
from benchmarks.evidence.report.tables import spoken
from benchmarks.evidence.report.tasks import BASELINE, TaskResults, sizes_section, task_section
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.statistics import difference_interval, mean_interval

PAGE, FIGURES = "long-context.md", "long-context"
OURS = "ASEntmax, NAPE"
ORDER = ("mqmtar", "sort", "reverse", "copy", "flip-flop")
_INTRODUCTION = """# Long-context results

Exact match at lengths far beyond those of training, with softmax,
[SSMax](https://arxiv.org/abs/2501.19399), [1.5-entmax](https://arxiv.org/abs/1905.05702),
[ASEntmax](https://arxiv.org/abs/2506.16640) and ASEntmax with a learned α. Every number, but for
earlier runs at the end, comes from a log in `benchmarks/results/evidence`: mean ± half of the 95%
interval over seeds (Student). **Bold** is better than softmax with NAPE, by a 95% interval of the
difference that excludes zero (Welch). Models are trained until development data at the training
length are solved to 99%, and at least as long again; the last checkpoint is scored, on 100
examples at each length, 20 beyond 64×. Where a method has several settings the table shows the
best one, by its mean over all lengths, and a second table all of them."""


def longcontext_page(logs: Mapping[str, Sequence[Log]], docs: Path, earlier: Path) -> Path | None:
    """Write the page; return its path, or None if there are no logs for it.

    Args:
        logs: Logs by experiment.
        docs: Folder of the page.
        earlier: Folder of earlier runs, with one seed each, and of the measured speed.
    """
    folder = docs / FIGURES
    tasks = [TaskResults(name, logs[name]) for name in ORDER if name in logs]
    language = LanguageResults(logs["language"]) if "language" in logs else None
    if not tasks and language is None:
        return None
    lines = [_INTRODUCTION, "", "## In short", ""]
    lines += [f"- {sentence}" for sentence in _answers(tasks, language)]
    lines += ["", *notes("long-context")]
    if tasks:
        lines += ["## Tasks", ""]
    for results in tasks:
        lines += task_section(results, folder)
    if tasks and "sizes" in logs:
        lines += sizes_section(logs["sizes"])
    if language is not None:
        lines += language_section(language, folder)
    newer = {results.name: list(results.best) for results in tasks}
    if language is not None:
        newer["language"] = list(language.runs)
    lines += earlier_sections(earlier, newer=newer)
    speed = earlier / "speed.json"
    if speed.is_file():
        lines += _speed_section(json.loads(speed.read_text(encoding="utf-8")))
    lines += _made(tasks, language)
    path = docs / PAGE
    write_text(path, "\n".join(lines).rstrip() + "\n")
    return path


def _answers(tasks: Sequence[TaskResults], language: LanguageResults | None) -> list[str]:
    found = [_task_answer(results) for results in tasks]
    if language is not None:
        found.append(_language_answer(language))
    return found


def _task_answer(results: TaskResults) -> str:
    """Say how far ASEntmax reaches, and where it differs from softmax the most."""
    if OURS not in results.best or BASELINE not in results.best:
        return f"**{results.title}**: not run with both softmax and ASEntmax yet."
    ours = {x: mean_interval(results.best_values(OURS, x)) for x in results.factors}
    reach = max((x for x in results.factors if ours[x].mean >= 50), default=None)
    first = f"**{results.title}**: ASEntmax has {spoken(ours[results.factors[0]], unit='%')} at 1×"
    if reach is not None and reach > 1:
        first += f" and {spoken(ours[reach], unit='%')} at {reach:g}×, the last above one half"
    gaps = (_widest_gap(results, OURS, "ahead of"), _widest_gap(results, BASELINE, "behind"))
    return f"{first}; it is {'; '.join(gap for gap in gaps if gap) or 'level with softmax'}."


def _widest_gap(results: TaskResults, leader: str, word: str) -> str:
    """Say where one of ASEntmax and softmax leads by most, if it leads anywhere."""
    other = BASELINE if leader == OURS else OURS
    gains = {
        x: difference_interval(results.best_values(leader, x), results.best_values(other, x))
        for x in results.factors
    }
    top = max(gains, key=lambda x: gains[x].mean)
    if gains[top].mean <= 0:
        return ""
    doubt = "" if gains[top].excludes_zero else ", which is no sure difference"
    gain = spoken(gains[top])
    unit = "point" if gain == "1" else "points"
    return f"furthest {word} softmax at {top:g}×, by {gain} {unit}{doubt}"


def _language_answer(results: LanguageResults) -> str:
    parts = []
    for method in results.runs:
        lengths = [x for x in results.lengths if results.found(method, x)]
        if not lengths:
            continue
        ends = lengths[0], lengths[-1]
        needles = [spoken(mean_interval(results.found(method, x)), unit="%") for x in ends]
        first, last = (mean_interval(results.perplexity(method, x)).mean for x in ends)
        change = 100 * (last / first - 1)
        parts.append(
            f"{method} finds {needles[0]} of the needles at {ends[0]:,} tokens and {needles[1]} "
            f"at {ends[1]:,}, where its perplexity is {abs(change):.1f}% "
            f"{'higher' if change > 0 else 'lower'}"
        )
    return f"**Language models**: {'; '.join(parts)}."


def _made(tasks: Sequence[TaskResults], language: LanguageResults | None) -> list[str]:
    every = [log for results in tasks for log in results.logs]
    every += language.logs if language is not None else []
    machines = sorted(
        {
            f"{x['threads']} thread of {x['cpu']}, torch {x['torch']}, adasparse {x['adasparse']}"
            for x in (log["machine"] for log in every)
        }
    )
    hours = sum(log["minutes"] for log in every) / 60
    return [
        "## Commands",
        "",
        "```sh",
        "python -m benchmarks.evidence plan",
        "python -m benchmarks.evidence run --hours 2.5 --threads 1",
        "python -m benchmarks.evidence report",
        "```",
        "",
        f"{len(every)} runs, {hours:.1f} hours of training at the median speed of each, beside "
        f"other work; {'; '.join(machines)}.",
        "",
    ]


def _speed_section(speed: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Speed",
        "",
        "4 layers, width 256, 8 heads; ASEntmax with NAPE next to softmax through PyTorch's "
        f"attention; {speed['threads']} threads of {speed['cpu']}. New models have scores close to "
        "zero, where sparse attention has most to look at; as after training, scores have a "
        "standard deviation of 1. The ratio is to the faster softmax.",
        "",
        "| what | weights | softmax, RoPE | softmax, no positions | ASEntmax | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    what = {"train": "a step of training", "evaluate": "reading an MQMTAR example"}
    weights = {"initial": "new", "trained": "as after training"}
    for row in speed["rows"]:
        times = [f"{row['ms'][name] / 1000:.2f} s" for name in row["ms"]]
        memory = f", {row['peak_gib']['asentmax nape']:.1f} GiB" if "peak_gib" in row else ""
        lines.append(
            f"| {what[row['case']]}, {row['length']:,} tokens{memory} | {weights[row['weights']]} "
            f"| {' | '.join(times)} | {row['ratio']:.2f} |"
        )
    return [*lines, "", f"`{speed['command']}`", ""]
