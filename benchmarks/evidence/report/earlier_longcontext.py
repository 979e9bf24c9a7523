"""Sections of the long-context page on earlier runs, with one seed each."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.report.tables import table
from benchmarks.evidence.report.tasks import NAMES, POSITIONS, TITLES

Result = Mapping[str, Any]
_INTRODUCTION = """## Earlier runs

What has not been run anew with all methods yet: one seed each, by version 0.1.0 and the recipes
`recipes/tasks/*-tiny.yaml` and `recipes/lm-tiny.yaml`, trained for minutes and not until solved. A
difference of less than ten points says nothing."""


def earlier_sections(folder: Path, *, newer: Mapping[str, Collection[str]]) -> list[str]:
    """Return the sections of runs with one seed, until all of their methods have been run anew.

    Args:
        folder: Folder of ``TASK.json`` and ``lm-*.json``.
        newer: Methods of the experiments that have logs of their own: tasks, or ``language``.
    """
    lines: list[str] = []
    for path in sorted(folder.glob("*.json")):
        if path.stem == "speed" or path.stem.startswith("lm-"):
            continue
        results = json.loads(path.read_text(encoding="utf-8"))
        if not {_method(x) for x in results} <= set(newer.get(path.stem, ())):
            lines += _task_section(results)
    models = [json.loads(x.read_text(encoding="utf-8")) for x in sorted(folder.glob("lm-*.json"))]
    if not {_method(x) for x in models} <= set(newer.get("language", ())):
        lines += _language_section(models)
    return [_INTRODUCTION, "", *lines] if lines else []


def _method(result: Result) -> str:
    return f"{NAMES[result['attention']]}, {POSITIONS[result['positions']]}"


def _task_section(results: Sequence[Result]) -> list[str]:
    first = results[0]
    recipe, train = first["recipe"], first["train_length"]
    lengths = sorted({score["length"] for result in results for score in result["scores"]})
    rows = []
    for result in results:
        exact = {score["length"]: score["exact_match"] for score in result["scores"]}
        cells = [f"{100 * exact[x]:.0f}" if x in exact else "" for x in lengths]
        rows.append([_method(result), *cells])
    return [
        f"### {TITLES.get(first['task'], first['task'].capitalize())}, one seed",
        "",
        f"Trained on sources of up to {train} tokens: {recipe['layers']} layers, width "
        f"{recipe['width']}, {recipe['heads']} heads, {recipe['max_steps']:,} steps of "
        f"{recipe['batch_size']} examples; {first['machine']['cpu']}, torch "
        f"{first['machine']['torch']}. Exact match (%) of "
        f"{first['scores'][0]['examples']} examples at each length:",
        "",
        *table(["attention", *(f"{x / train:g}×" for x in lengths)], rows),
    ]


def _language_section(results: Sequence[Result]) -> list[str]:
    recipe = results[0]["recipe"]
    lengths = [entry["length"] for entry in results[0]["perplexity"]["lengths"]]
    perplexities = [
        [_method(x), *(f"{entry['perplexity']:,.1f}" for entry in x["perplexity"]["lengths"])]
        for x in results
    ]
    return [
        "### Language models, one seed",
        "",
        f"Six novels, {recipe['layers']} layers, width {recipe['width']}, {recipe['heads']} heads, "
        f"a vocabulary of {recipe['vocab_size']:,}, {recipe['max_steps']:,} steps of "
        f"{recipe['batch_size']} × {recipe['context']} tokens. Perplexity of a held-out novel in "
        "windows of growing length:",
        "",
        *table(["attention", *(f"{x:,}" for x in lengths)], perplexities),
        "Needles found (%), over all depths:",
        "",
        *_needles(results),
    ]


def _needles(results: Sequence[Result]) -> list[str]:
    lengths = list(dict.fromkeys(x["length"] for x in results[0]["needles"]["scores"]))
    rows = []
    for result in results:
        found: dict[int, list[float]] = defaultdict(list)
        for score in result["needles"]["scores"]:
            found[score["length"]].append(score["exact_match"])
        cells = [f"{100 * sum(found[x]) / len(found[x]):.0f}" for x in lengths]
        rows.append([_method(result), *cells])
    return table(["attention", *(f"{x:,}" for x in lengths)], rows)
