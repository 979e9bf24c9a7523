"""Section of the long-context page on language models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.report.figures import draw_lines
from benchmarks.evidence.report.logs import Log, by_run, hours_of, seeds_of
from benchmarks.evidence.report.tables import cell, table
from benchmarks.evidence.report.tasks import BASELINE, NAMES, POSITIONS

from adasparse.longcontext import wilson_interval


class LanguageResults:
    """All runs of the language models.

    Args:
        logs: Their logs.
    """

    def __init__(self, logs: Sequence[Log]) -> None:
        self.logs = list(logs)
        self.runs = {self.method(x[0]): x for x in by_run(logs).values()}
        self.lengths = sorted({x["length"] for log in logs for x in log["perplexity"]})
        self.depths = sorted({x["depth"] for log in logs for x in log["needles"]})

    def method(self, log: Log) -> str:
        settings = log["settings"]
        return f"{NAMES[settings['attention']]}, {POSITIONS[settings['positions']]}"

    def perplexity(self, method: str, length: int) -> list[float]:
        """Return the perplexity of all seeds at a length."""
        return [
            x["perplexity"]
            for log in self.runs.get(method, [])
            for x in log["perplexity"]
            if x["length"] == length
        ]

    def found(self, method: str, length: int, depth: float | None = None) -> list[float]:
        """Return the share of needles found in % of all seeds at a length, at a depth or at all."""
        found = []
        for log in self.runs.get(method, []):
            scores = [x for x in log["needles"] if x["length"] == length]
            scores = [x for x in scores if depth is None or x["depth"] == depth]
            if scores:
                found.append(100 * sum(x["exact_match"] for x in scores) / len(scores))
        return found


def needle_cell(results: LanguageResults, method: str, length: int) -> str:
    """Return the share of needles found; with one seed, its 95% interval over needles (Wilson)."""
    values = results.found(method, length)
    if len(values) != 1:
        baseline = None if method == BASELINE else results.found(BASELINE, length)
        return cell(values, baseline)
    scores = [x for x in results.runs[method][0]["needles"] if x["length"] == length]
    trials = sum(x["trials"] for x in scores)
    right = sum(round(x["trials"] * x["exact_match"]) for x in scores)
    low, high = wilson_interval(right, trials)
    return f"{values[0]:.0f} ({100 * low:.0f} to {100 * high:.0f})"


def language_section(results: LanguageResults, folder: Path) -> list[str]:
    """Return the section of the language models, and draw its figure."""
    settings = results.logs[0]["settings"]
    mix = settings["retrieval"]
    draw_lines(
        folder / "language",
        {
            "perplexity": {
                method: {x: results.perplexity(method, x) for x in results.lengths}
                for method in results.runs
            },
            "needles found (%)": {
                method: {x: y for x in results.lengths if (y := results.found(method, x))}
                for method in results.runs
            },
        },
        x_label="tokens",
        logarithmic=("perplexity",),
        percent=("needles found (%)",),
    )
    lengths = [f"{x:,}" for x in results.lengths]
    perplexity, needles, depths = [], [], []
    for method in results.runs:
        base = None if method == BASELINE else BASELINE
        perplexity.append([method])
        needles.append([method])
        for x in results.lengths:
            baseline = results.perplexity(base, x) if base else None
            ours = results.perplexity(method, x)
            perplexity[-1].append(cell(ours, baseline, digits=1, is_better_high=False))
            needles[-1].append(needle_cell(results, method, x))
        for x in results.lengths:
            cells = [cell(results.found(method, x, depth)) for depth in results.depths]
            depths.append([method, f"{x:,}", *cells])
    trials = results.logs[0]["needles"][0]["trials"]
    return [
        "## Language models",
        "",
        f"Six novels, {settings['layers']} layers, width {settings['width']}, "
        f"{settings['heads']} heads, vocabulary of {settings['vocab_size']:,}, "
        f"{settings['max_steps']:,} steps of {settings['batch_size']} × {settings['context']} "
        f"tokens{_first_steps(settings)}. In {mix['share']:.0%} of the passages of "
        f"{_characters(mix)} characters up to {mix['max_facts']} facts are stated and asked for "
        f"later{_times(mix)}, of other names than those of the test "
        "(`adasparse.longcontext.retrieval`). Seeds "
        f"{', '.join(map(str, seeds_of(results.logs)))}; {hours_of(results.logs):.1f} hours of "
        "training on one thread in all.",
        "",
        "Perplexity of a held-out novel by length of the window:",
        "",
        *table(["attention", *lengths], perplexity),
        f"Needles found in %, over {len(results.depths)} depths with {trials} needles each; in "
        "brackets, where there is one seed, the 95% interval over needles (Wilson):",
        "",
        *table(["attention", *lengths], needles),
        f"![Perplexity and needles against length]({folder.name}/language.svg)",
        "",
        "Needles found in % by depth; 0 is the beginning of the window, 1 its end:",
        "",
        *table(["attention", "length", *(f"{x:g}" for x in results.depths)], depths),
    ]


def _first_steps(settings: dict[str, Any]) -> str:
    """Say how the first steps differ."""
    steps, first = settings.get("first_context_steps", 0), settings.get("first_context")
    cut = f", the first {steps:,} of them cut into texts of {first}" if steps else ""
    return cut + ("; Muon and AdamW" if settings.get("optimizer") == "muon" else "")


def _characters(mix: dict[str, Any]) -> str:
    shortest = mix.get("shortest")
    return (
        f"about {mix['passage']:,}" if shortest is None else f"{shortest:,} to {mix['passage']:,}"
    )


def _times(mix: dict[str, Any]) -> str:
    """Say how often facts are asked for."""
    return f", {mix['questions']} times each" if mix.get("questions", 1) > 1 else ""
