"""Write docs/results/long-context.md from the files in benchmarks/results/longcontext.

.venv/bin/python -m benchmarks.longcontext_report
"""

import json
from collections import defaultdict
from pathlib import Path

from benchmarks.evidence.report.longcontext import speed_section

from adasparse._files import write_atomically
from adasparse.analysis.figures import accuracy_by_length, save_figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "longcontext"
PAGE = ROOT / "docs" / "results" / "long-context.md"
FIGURES = PAGE.parent / "long-context"
TASKS = ("sort", "reverse", "copy", "mqmtar", "flipflop")
NAMES = {
    "softmax": "softmax",
    "ssmax": "SSMax",
    "entmax": "1.5-entmax",
    "asentmax": "ASEntmax",
    "asentmax-adaptive": "ASEntmax, learned α",
}
POSITIONS = {"nape": "NAPE", "rope": "RoPE"}
CLEARLY = 0.3  # points of exact match

Scores = dict[int, float]  # exact match by length


def main() -> None:
    paths = {task: RESULTS / f"{task}.json" for task in TASKS}
    tasks = {task: json.loads(path.read_text()) for task, path in paths.items() if path.exists()}
    parts = ["# Long-context results", "", (RESULTS / "summary.md").read_text().strip(), ""]
    parts += ["## Tasks", "", *_verdict(tasks)]
    FIGURES.mkdir(parents=True, exist_ok=True)
    for task, results in tasks.items():
        save_figure(accuracy_by_length(results), FIGURES / task)
        (FIGURES / f"{task}.png").unlink()
        parts += _task_section(task, results)
    language = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("lm-*.json"))]
    if language:
        parts += _language_section(language)
    speed = RESULTS / "speed.json"
    if speed.exists():
        parts += speed_section(json.loads(speed.read_text()))
    write_atomically(PAGE, "\n".join(parts))


def _method(result: dict) -> str:
    return f"{NAMES[result['attention']]}, {POSITIONS[result['positions']]}"


def _exact(results: list[dict]) -> dict[str, Scores]:
    """Exact match by method and length, the mean over seeds."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for score in result["scores"]:
            found[_method(result)][score["length"]].append(score["exact_match"])
    return {
        method: {length: sum(x) / len(x) for length, x in scores.items()}
        for method, scores in found.items()
    }


def _verdict(tasks: dict[str, list[dict]]) -> list[str]:
    """ASEntmax next to softmax, both with NAPE."""
    lines = [
        "ASEntmax next to softmax, both with NAPE:",
        "",
        "| task | at least as good at every length from 2× on | largest gain | at | largest loss "
        "| at |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for results in tasks.values():
        train = results[0]["train_length"]
        exact = _exact(results)
        ours, theirs = exact["ASEntmax, NAPE"], exact["softmax, NAPE"]
        # Scoring ends where nothing is right any more.
        lengths = {x for x in (*ours, *theirs) if x > train}
        gains = {x: ours.get(x, 0.0) - theirs.get(x, 0.0) for x in lengths}
        best, worst = max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)
        beyond = [x for x in lengths if x >= 2 * train]
        is_good = "yes" if min(gains[x] for x in beyond) >= 0 else "no"
        if not any(scores.get(x) for x in beyond for scores in (ours, theirs)):
            is_good += ", both zero"
        gain = f"{100 * gains[best]:+.0f}" + (" points" if gains[best] < CLEARLY else " **points**")
        loss = f"{100 * min(0.0, gains[worst]):.0f} points"
        lines.append(
            f"| {results[0]['task']} | {is_good} | {gain} | {best / train:g}× | {loss} "
            f"| {worst / train:g}× |"
        )
    return [*lines, ""]


def _task_section(task: str, results: list[dict]) -> list[str]:
    first = results[0]
    recipe, train = first["recipe"], first["train_length"]
    lengths = sorted({score["length"] for result in results for score in result["scores"]})
    seeds = sorted({result["seed"] for result in results})
    examples = first["scores"][0]["examples"] * len(seeds)
    minutes = sorted(result["minutes"] for result in results)
    lines = [
        f"### {first['task']}",
        "",
        f"Trained on sources of up to {train} tokens: {recipe['layers']} layers, width "
        f"{recipe['width']}, {recipe['heads']} heads, {recipe['max_steps']:,} steps of "
        f"{recipe['batch_size']} examples; {minutes[0]:.0f} to {minutes[-1]:.0f} minutes each on "
        f"{recipe['threads']} busy core(s) of {first['machine']['cpu']}, torch "
        f"{first['machine']['torch']}; seed(s) {', '.join(map(str, seeds))}. Exact match over "
        f"{examples} examples at each multiple of the training length, up to where it is zero:",
        "",
        "| attention | " + " | ".join(f"{x / train:g}×" for x in lengths) + " |",
        "| --- |" + " ---: |" * len(lengths),
    ]
    for method, scores in _exact(results).items():
        cells = [f"{100 * scores[x]:.0f}%" if x in scores else "" for x in lengths]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        f"![Exact match against length]({PAGE.stem}/{task}.svg)",
        "",
        f"`.venv/bin/python benchmarks/longcontext_runs.py --work runs --task {task} "
        f"--seeds {','.join(map(str, seeds))} --threads {recipe['threads']}`",
        "",
    ]


def _language_section(results: list[dict]) -> list[str]:
    first = results[0]
    recipe = first["recipe"]
    lengths = [entry["length"] for entry in first["perplexity"]["lengths"]]
    lines = [
        "## Language models",
        "",
        f"Six novels, {recipe['layers']} layers, width {recipe['width']}, {recipe['heads']} heads, "
        f"a vocabulary of {recipe['vocab_size']:,}, {recipe['max_steps']:,} steps of "
        f"{recipe['batch_size']} × {recipe['context']} tokens. Perplexity of a novel that was held "
        f"out, read in windows of growing length; models were trained at {recipe['context']}.",
        "",
        "| attention | " + " | ".join(f"{x:,}" for x in lengths) + " | minutes |",
        "| --- |" + " ---: |" * (len(lengths) + 1),
    ]
    for result in results:
        found = [entry["perplexity"] for entry in result["perplexity"]["lengths"]]
        cells = [f"{x:,.1f}" for x in found]
        lines.append(f"| {_method(result)} | {' | '.join(cells)} | {result['minutes']:.0f} |")
    lines += [
        "",
        "The same by position, within windows of the longest length:",
        "",
    ]
    last = [result["perplexity"]["lengths"][-1] for result in results]
    buckets = [f"{x['first']:,} to {x['end'] - 1:,}" for x in last[0]["buckets"]]
    lines += [
        "| attention | " + " | ".join(buckets) + " |",
        "| --- |" + " ---: |" * len(buckets),
    ]
    for result, entry in zip(results, last, strict=True):
        cells = [f"{x['perplexity']:,.1f}" for x in entry["buckets"]]
        lines.append(f"| {_method(result)} | {' | '.join(cells)} |")
    if first["needles"] is not None:
        lines += ["", *_needle_lines(results)]
    return [
        *lines,
        "",
        "`.venv/bin/python benchmarks/longcontext_runs.py --work runs --novels "
        f"DATA/lm/gutenberg_novels --threads {recipe['threads']}`",
        "",
    ]


def _needle_lines(results: list[dict]) -> list[str]:
    lengths = list(dict.fromkeys(x["length"] for x in results[0]["needles"]["scores"]))
    lines = [
        "Needles found, over all depths:",
        "",
        "| attention | " + " | ".join(f"{x:,}" for x in lengths) + " |",
        "| --- |" + " ---: |" * len(lengths),
    ]
    for result in results:
        scores: dict[int, list[float]] = defaultdict(list)
        for score in result["needles"]["scores"]:
            scores[score["length"]].append(score["exact_match"])
        cells = [f"{100 * sum(scores[x]) / len(scores[x]):.0f}%" for x in lengths if x in scores]
        lines.append(f"| {_method(result)} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
