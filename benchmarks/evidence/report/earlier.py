"""Sections of the translation page on earlier runs, with one seed each."""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.evidence.report.tables import table

NAMES = {"softmax": "softmax", "entmax": "1.5-entmax", "adaptive": "α-entmax"}
CORPORA = {
    "multi30k": "Multi30k",
    "small_parallel_enja": "small_parallel_enja",
    "roen_mixed": "a mix of Romanian-English corpora",
    "tatoeba_de-en": "Tatoeba",
}
KINDS = {
    "encoder": lambda name: ".encoder." in name,
    "decoder": lambda name: ".decoder." in name and name.endswith("self_attn"),
    "context": lambda name: name.endswith("encoder_attn"),
}
_INTRODUCTION = """## Earlier runs

Other directions and corpora, with one seed each, so that differences of half a point mean little.
Minutes compare nothing: other work ran beside most trainings, and all but those of de → en had
`MALLOC_TRIM_THRESHOLD_` and `MALLOC_MMAP_THRESHOLD_` raised to some GB, which saves page faults and
changes no result. en → de was trained to 4,000 updates and resumed."""


def earlier_sections(folder: Path, *, without: Collection[tuple[str, str]] = ()) -> list[str]:
    """Return the sections of runs with one seed, those of some corpora and pairs left out."""
    results = [json.loads(x.read_text(encoding="utf-8")) for x in sorted(folder.glob("*-*.json"))]
    order = list(NAMES)
    results.sort(key=lambda x: (x["pair"], order.index(x["attention"])))
    results = [x for x in results if (x["corpus"], x["pair"]) not in without]
    lines = [_INTRODUCTION, ""] if results else []
    for _, own in groupby(results, key=lambda x: x["pair"]):
        lines += _section(list(own))
    return lines


def _section(results: Sequence[Mapping[str, Any]]) -> list[str]:
    first = results[0]
    source, target = first["pair"].split("-")
    tests = list(first["tests"])
    head = ["attention", *(y for x in tests for y in (f"{x}: BLEU", "chrF"))]
    head += ["development: BLEU", "loss", "minutes"]
    rows = []
    for x in results:
        scores = [f"{x['tests'][test][key]:.2f}" for test in tests for key in ("bleu", "chrf")]
        chosen = x["development"]["candidates"][x["development"]["model"]]
        other = [f"{chosen['bleu']:.2f}", f"{chosen['loss']:.3f}", f"{x['training_minutes']:.0f}"]
        rows.append([NAMES[x["attention"]], *scores, *other])
    signature = next(iter(first["tests"].values()))["signatures"]
    learned = [x["alpha"][-1]["alpha"] for x in results if x["attention"] == "adaptive"]
    return [
        f"### {source} → {target}",
        "",
        f"{CORPORA[first['corpus']]}, {first['pairs']:,} pairs, vocabulary of "
        f"{first['vocabulary']:,}, {first['recipe']['max_steps']:,} updates of "
        f"{first['recipe']['batch_tokens']:,} tokens.",
        "",
        *table(head, rows),
        f"BLEU `{signature['bleu']}`, chrF `{signature['chrf']}`; seed {first['recipe']['seed']}; "
        f"{first['threads']} thread(s) of {first['machine']['cpu']}, torch "
        f"{first['machine']['torch']}. Minutes are those of training at its median speed.",
        "",
        *alpha_table(learned),
    ]


def alpha_table(learned: Sequence[Mapping[str, Sequence[float]]]) -> list[str]:
    """Learned exponents at the end of some runs, by attention type."""
    if not learned:
        return []
    rows = []
    for kind, belongs in KINDS.items():
        values = [x for run in learned for name, own in run.items() if belongs(name) for x in own]
        mean = sum(values) / len(values)
        rows.append([kind, *(f"{x:.2f}" for x in (min(values), mean, max(values)))])
    head = ["attention", "lowest", "mean", "highest"]
    return ["Learned α at the end, by attention type:", "", *table(head, rows)]


def speed_section(path: Path) -> list[str]:
    """Return the section on speed."""
    if not path.is_file():
        return []
    speed = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        [
            row["what"],
            NAMES.get(row["attention"], row["attention"]),
            f"{row['speed']:,.0f}",
            f"{row['ratio']:.2f}",
        ]
        for row in speed["rows"]
    ]
    return [
        "## Speed",
        "",
        "Tokens a second in training, or sentences a second in translating, and the speedup over "
        "softmax. The kinds of attention take turns on the same batches, and the best of "
        f"{speed['repeats']} rounds counts; {speed['threads']} threads of {speed['cpu']}.",
        "",
        *table(["what", "attention", "speed", "ratio"], rows, left=2),
        f"`{speed['command']}`",
        "",
    ]
