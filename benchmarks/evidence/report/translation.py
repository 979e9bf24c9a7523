"""The page on translation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.evidence.report.earlier import (
    CORPORA,
    KINDS,
    NAMES,
    alpha_table,
    earlier_sections,
    speed_section,
)
from benchmarks.evidence.report.figures import draw_lines
from benchmarks.evidence.report.logs import Log, by_run, hours_of, seeds_of
from benchmarks.evidence.report.notes import notes
from benchmarks.evidence.report.tables import cell, spoken, table
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.statistics import Interval, bleu_of_sums, paired_bootstrap

PAGE, FIGURES = "translation.md", "translation"
BASELINE = "softmax"
EXPERIMENTS = ("multi30k", "tatoeba")
_INTRODUCTION = """# Translation results

Small Transformers, trained with the same batches and the same number of updates in three variants:
with softmax attention by PyTorch's `scaled_dot_product_attention`, with
[1.5-entmax](https://arxiv.org/abs/1905.05702), and with a [learned α per
head](https://arxiv.org/abs/1909.00015). Nothing else differs. Scores are sacreBLEU's, of cased and
untokenized text, by beam search. Every number comes from a log in `benchmarks/results`."""
_COMMANDS = """## Commands

```sh
python -m benchmarks.evidence plan
python -m benchmarks.evidence run --hours 2.5 --threads 1
python -m benchmarks.evidence report
```
"""


def translation_page(logs: Mapping[str, Sequence[Log]], docs: Path, earlier: Path) -> Path | None:
    """Write the page; return its path, or None if there is nothing for it."""
    found = {name: logs[name] for name in EXPERIMENTS if name in logs}
    sections = [line for name, own in found.items() for line in _section(name, own, docs / FIGURES)]
    if "tatoeba-alpha" in logs:
        sections += _factor_section(logs["tatoeba-alpha"], docs / FIGURES)
    settings = [own[0]["settings"] for own in found.values()]
    has_new = {(x["corpus"], f"{x['source']}-{x['target']}") for x in settings}
    sections += earlier_sections(earlier, without=has_new)
    if not sections:
        return None
    answers = [f"- {x}" for name, own in found.items() for x in _answers(own)]
    short = ["## In short", "", *answers, ""] if answers else []
    lines = [_INTRODUCTION, "", *short, *notes("translation"), *sections]
    lines += [*speed_section(earlier / "speed.json"), _COMMANDS]
    path = docs / PAGE
    write_text(path, "\n".join(lines).rstrip() + "\n")
    return path


def difference(ours: Sequence[Log], theirs: Sequence[Log], test: str) -> Interval:
    """Return the difference of BLEU by paired bootstrap over seeds and sentences."""
    arrays = [
        np.array([log["tests"][test]["statistics"] for log in logs], float)
        for logs in (ours, theirs)
    ]
    return paired_bootstrap(arrays[0], arrays[1], bleu_of_sums)


def _title(log: Log) -> str:
    settings = log["settings"]
    return f"{CORPORA[settings['corpus']]} {settings['source']} → {settings['target']}"


def _answers(logs: Sequence[Log]) -> list[str]:
    """Say for each variant how its BLEU differs from that of softmax on the first test."""
    runs = by_run(logs)
    test = logs[0]["evaluation"]["tests"][0]
    found = []
    for run, own in runs.items():
        if run == BASELINE or BASELINE not in runs:
            continue
        gain = difference(own, runs[BASELINE], test)
        verdict = "a sure difference" if gain.excludes_zero else "no sure difference"
        found.append(
            f"**{_title(logs[0])}**, {test}: {NAMES[own[0]['settings']['attention']]} differs from "
            f"softmax by {spoken(gain, digits=2)} BLEU over {gain.count} seed(s), {verdict}."
        )
    return found


def _section(name: str, logs: Sequence[Log], folder: Path) -> list[str]:
    runs, settings = by_run(logs), logs[0]["settings"]
    runs = {x: runs[x] for x in NAMES if x in runs}
    tests = logs[0]["evaluation"]["tests"]
    head = ["attention", "seeds"]
    head += [y for x in tests for y in (f"{x}: BLEU", "difference to softmax", "chrF")]
    rows = []
    for run, own in runs.items():
        rows.append([NAMES[run], str(len(own))])
        for test in tests:
            bleu, chrf = ([log["tests"][test][key] for log in own] for key in ("bleu", "chrf"))
            gain = None
            if run != BASELINE and BASELINE in runs:
                gain = difference(own, runs[BASELINE], test)
            text = cell(bleu, digits=2)
            is_better = gain is not None and gain.low > 0
            rows[-1] += [
                f"**{text}**" if is_better else text,
                "" if gain is None else spoken(gain, digits=2),
                cell(chrf, digits=2),
            ]
    draw_lines(
        folder / name,
        {"development BLEU": _curves(runs)},
        x_label="updates",
        is_length=False,
    )
    signatures = logs[0]["tests"][tests[0]]["signatures"]
    learned = [log["alpha"][-1]["alpha"] for log in runs.get("adaptive", [])]
    return [
        f"## {_title(logs[0])}",
        "",
        f"{settings['encoder_layers']} + {settings['decoder_layers']} layers, width "
        f"{settings['width']}, {settings['heads']} heads, dropout {settings['dropout']}, "
        f"vocabulary of {settings['vocab_size']:,}, {settings['max_steps']:,} updates of "
        f"{settings['batch_tokens']:,} tokens; seeds {', '.join(map(str, seeds_of(logs)))}; "
        f"{hours_of(logs):.1f} hours on one thread in all. Means ± half of the 95% interval over "
        "seeds; differences with their 95% interval by paired bootstrap over seeds and sentences, "
        "**bold** where it is above zero.",
        "",
        *table(head, rows),
        f"![BLEU on development data]({folder.name}/{name}.svg)",
        "",
        f"BLEU `{signatures['bleu']}`, chrF `{signatures['chrf']}`.",
        "",
        *alpha_table(learned),
    ]


def _curves(runs: Mapping[str, Sequence[Log]]) -> dict[str, dict[float, list[float]]]:
    return {
        NAMES[run]: {
            point["step"]: [
                x["dev_bleu"] for log in own for x in log["curve"] if x["step"] == point["step"]
            ]
            for point in own[0]["curve"]
        }
        for run, own in runs.items()
    }


def _factor_section(logs: Sequence[Log], folder: Path) -> list[str]:
    """Trajectories of α with several factors on its learning rate."""
    panels, rows = {}, []
    for log in sorted(logs, key=lambda log: float(log["settings"]["alpha_lr_factor"])):
        factor = f"factor {log['settings']['alpha_lr_factor']:g}"
        panels[factor] = {
            end: {
                point["step"]: [pick([x for own in point["alpha"].values() for x in own])]
                for point in log["alpha"]
            }
            for end, pick in (
                ("highest", max),
                ("mean", lambda x: sum(x) / len(x)),
                ("lowest", min),
            )
        }
        last = log["alpha"][-1]["alpha"]
        spans = []
        for belongs in KINDS.values():
            values = [x for name, own in last.items() if belongs(name) for x in own]
            spans.append(f"{min(values):.2f} to {max(values):.2f}")
        bleu = log["tests"][log["evaluation"]["tests"][0]]["bleu"]
        rows.append([factor, *spans, f"{bleu:.2f}"])
    draw_lines(folder / "alpha-factors", panels, x_label="updates", is_length=False)
    return [
        "## A learning rate of its own for α",
        "",
        f"{_title(logs[0])}, α-entmax, {logs[0]['settings']['max_steps']:,} updates; the learning "
        "rate of α is that of the weights times a factor.",
        "",
        *table(["", *(f"α, {kind}" for kind in KINDS), "BLEU"], rows),
        f"![α against updates]({folder.name}/alpha-factors.svg)",
        "",
    ]
