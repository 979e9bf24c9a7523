"""Sections of the long-context page on tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.report.figures import draw_lines
from benchmarks.evidence.report.logs import Log, by_run, hours_of, seeds_of
from benchmarks.evidence.report.tables import cell, table

NAMES = {
    "softmax": "softmax",
    "ssmax": "SSMax",
    "entmax": "1.5-entmax",
    "asentmax": "ASEntmax",
    "asentmax-adaptive": "ASEntmax, learned α",
}
POSITIONS = {"nape": "NAPE", "rope": "RoPE", "nope": "no positions", "alibi": "ALiBi"}
BASELINE = "softmax, NAPE"
TITLES = {"mqmtar": "MQMTAR", "flip-flop": "Flip-Flop"}
MEASURES = {
    "entropy (nats)": "entropy",
    "support": "support",
    "weight on the relevant token (%)": "relevant",
}


class TaskResults:
    """All runs of a task, best settings of each method first.

    Args:
        name: Name of the experiment.
        logs: Its logs.
    """

    def __init__(self, name: str, logs: Sequence[Log]) -> None:
        self.name, self.logs = name, list(logs)
        self.runs = by_run(logs)
        self.train_length: int = logs[0]["settings"]["max_length"]
        self.factors = sorted({x for log in logs for x in self.exact(log)})
        self.best = self._best()

    @property
    def title(self) -> str:
        task = str(self.logs[0]["settings"]["task"])
        base = task.rpartition("-")[0] if task.rpartition("-")[2].isdecimal() else task
        return TITLES.get(base, base.capitalize())

    def exact(self, log: Log) -> dict[float, float]:
        """Return exact match in % by multiple of the training length, as far as it was scored."""
        return {
            score["length"] / self.train_length: 100 * score["exact_match"]
            for score in log["scores"]
        }

    def values(self, run: str, factor: float) -> list[float]:
        """Return exact match of all seeds; scoring ends where nothing is right any more."""
        return [self.exact(log).get(factor, 0.0) for log in self.runs[run]]

    def method(self, run: str) -> str:
        """Return the method of a run."""
        settings = self.runs[run][0]["settings"]
        return f"{NAMES[settings['attention']]}, {POSITIONS[settings['positions']]}"

    def _best(self) -> dict[str, str]:
        """Return the best run of each method, by the mean over lengths and seeds."""
        found: dict[str, str] = {}
        for run in self.runs:
            other = found.get(self.method(run))
            if other is None or self._rank(run) > self._rank(other):
                found[self.method(run)] = run
        return found

    def _rank(self, run: str) -> float:
        means = [sum(self.values(run, x)) / len(self.runs[run]) for x in self.factors]
        return sum(means)

    def best_values(self, method: str, factor: float) -> list[float]:
        """Return exact match of all seeds of a method's best run; nothing if it has no runs."""
        return self.values(self.best[method], factor) if method in self.best else []


def task_section(results: TaskResults, folder: Path) -> list[str]:
    """Return the section of a task, and draw its figures."""
    lines = [f"### {results.title}", "", _about(results), "", *_best_table(results)]
    stem = folder / results.name
    curves = {
        method: {x: results.values(run, x) for x in results.factors}
        for method, run in results.best.items()
    }
    draw_lines(
        stem,
        {"exact match (%)": curves},
        x_label="multiple of the training length",
        percent=("exact match (%)",),
    )
    lines += [f"![Exact match against length]({folder.name}/{results.name}.svg)", ""]
    lines += [*_dispersion(results, folder), *_all_table(results)]
    return lines


def _about(results: TaskResults) -> str:
    settings = results.logs[0]["settings"]
    task = settings["task"]
    alphabet = f", alphabet of {task.rpartition('-')[2]}" if task[-1:].isdecimal() else ""
    head_size = f" of {settings['head_dim']}" if "head_dim" in settings else ""
    steps = sorted({log["steps"] for log in results.logs})
    span = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return (
        f"Trained on sources of {settings['min_length']} to {settings['max_length']} "
        f"tokens{alphabet}: {settings['layers']} layers, width {settings['width']}, "
        f"{settings['heads']} heads{head_size}, MLP of {settings['ffn']}; {span} steps of "
        f"{settings['batch_size']} examples{_easier(settings)}. Seeds "
        f"{', '.join(map(str, seeds_of(results.logs)))}; {hours_of(results.logs):.1f} hours of "
        "training on one thread in all."
    )


def _easier(settings: dict[str, Any]) -> str:
    """Say how training differs from the published one."""
    found = ["Muon and AdamW"] if settings.get("optimizer") == "muon" else []
    if settings.get("look_alikes"):
        share = f"{settings['look_alikes']:.0%}"
        found.append(f"in {share} of them keys and values differ in one letter only")
    if settings.get("few_queries_steps"):
        found.append(
            f"those of the first {settings['few_queries_steps']:,} steps ask for fewer keys"
        )
    return "".join(f"; {x}" for x in found)


def _best_table(results: TaskResults) -> list[str]:
    """Exact match of the best setting of each method."""
    head = ["attention", "solved at step", *(f"{x:g}×" for x in results.factors)]
    rows = []
    for method, run in results.best.items():
        cells = [
            cell(
                results.values(run, factor),
                None if method == BASELINE else results.best_values(BASELINE, factor),
            )
            for factor in results.factors
        ]
        rows.append([method, _solved(results.runs[run]), *cells])
    return table(head, rows)


def _solved(logs: Sequence[Log]) -> str:
    steps = [log["solved_at"] for log in logs]
    found = sorted(x for x in steps if x is not None)
    if not found:
        return "no seed"
    span = f"{found[0]:,}" if found[0] == found[-1] else f"{found[0]:,} to {found[-1]:,}"
    return span if len(found) == len(steps) else f"{span}; {len(found)} of {len(steps)} seeds"


def _all_table(results: TaskResults) -> list[str]:
    """Every setting that was run, where a method has several."""
    if len(results.runs) == len(results.best):
        return []
    head = ["attention", "learning rate", "seeds", *(f"{x:g}×" for x in results.factors)]
    rows = []
    for run, logs in results.runs.items():
        cells = [cell(results.values(run, factor)) for factor in results.factors]
        rate = f"{logs[0]['settings']['learning_rate']:g}"
        rows.append([results.method(run), rate, str(len(logs)), *cells])
    rows.sort(key=lambda row: (row[0], float(row[1])))
    return ["All settings:", "", *table(head, rows)]


def sizes_section(logs: Sequence[Log]) -> list[str]:
    """Return a table of the short runs by which sizes were chosen."""
    factors = logs[0]["evaluation"]["factors"]
    head = ["task", "layers", "head size", "look-alikes", "learning rate", "steps"]
    head += ["solved at step"]
    rows = []
    for log in logs:
        settings = log["settings"]
        exact = {x["length"] / settings["max_length"]: x["exact_match"] for x in log["scores"]}
        cells = [f"{100 * exact.get(factor, 0.0):.0f}" for factor in factors]
        solved = "no" if log["solved_at"] is None else f"{log['solved_at']:,}"
        head_dim = settings.get("head_dim", settings["width"] // settings["heads"])
        alike = f"{settings.get('look_alikes', 0):.0%}"
        size = [str(settings["layers"]), str(head_dim), alike]
        size += [f"{settings['learning_rate']:g}", f"{log['steps']:,}"]
        rows.append([settings["task"], *size, solved, *cells])
    return [
        "### Sizes that were tried",
        "",
        "ASEntmax with NAPE, one seed. A number after the name of a task is the size of its "
        "alphabet; as published it is 32, and 256 for MQMTAR. Look-alikes are the share of the "
        "training examples whose keys, and values, differ in one letter.",
        "",
        *table([*head, *(f"{x:g}×" for x in factors)], rows),
    ]


def _dispersion(results: TaskResults, folder: Path) -> list[str]:
    """Entropy, support and weight on the relevant token against length."""
    found = {
        results.method(run): next((x["dispersion"] for x in logs if "dispersion" in x), None)
        for run, logs in results.runs.items()
        if run in results.best.values()
    }
    found = {method: x for method, x in found.items() if x}
    if not found:
        return []
    panels = {
        title: {
            method: {
                entry["length"] / results.train_length: [_over_heads(entry["heads"], field)]
                for entry in dispersion["lengths"]
            }
            for method, dispersion in found.items()
        }
        for title, field in MEASURES.items()
    }
    name = f"{results.name}-dispersion"
    draw_lines(
        folder / name,
        panels,
        x_label="multiple of the training length",
        logarithmic=("support",),
        percent=("weight on the relevant token (%)",),
    )
    factors = sorted(next(iter(next(iter(panels.values())).values())))
    ends = (factors[0], factors[-1])
    head = ["attention", *(f"{title}, {x:g}×" for title in MEASURES for x in ends)]
    rows = [
        [method, *(f"{panels[title][method][x][0]:.3g}" for title in MEASURES for x in ends)]
        for method in found
    ]
    return [
        "Dispersion of one model of each method, over the queries that predict something: mean "
        "entropy and mean support of its heads, and the weight on the token that holds the answer "
        "in the head that has most of it.",
        "",
        f"![Dispersion against length]({folder.name}/{name}.svg)",
        "",
        *table(head, rows),
    ]


def _over_heads(heads: Sequence[dict[str, Any]], field: str) -> float:
    values = [head[field] for head in heads if head[field] is not None]
    return 100 * max(values) if field == "relevant" else sum(values) / len(values)
