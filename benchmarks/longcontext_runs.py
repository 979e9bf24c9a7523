"""Train and score the published long-context models, one result file for each task.

    .venv/bin/python benchmarks/longcontext_runs.py --work runs [--task sort] [--seeds 1,2]
    .venv/bin/python benchmarks/longcontext_runs.py --work runs --novels DATA/lm/gutenberg_novels

Tasks come first; with --novels, language models instead. The recipes are the tiny ones. Finished
trainings are kept in --work and not repeated; an interrupted one resumes. Results go to
benchmarks/results/longcontext; benchmarks/longcontext_report.py makes the page
docs/results/long-context.md from them.
"""

import argparse
import json
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from adasparse import diagnostics
from adasparse._files import write_atomically
from adasparse.longcontext.language_eval import evaluate_reading
from adasparse.longcontext.lm import train_language
from adasparse.longcontext.recipe import LanguageRecipe, LongContextRecipe, TaskRecipe
from adasparse.longcontext.sweep import run_one
from adasparse.longcontext.task_eval import evaluate_run
from adasparse.training import ProgressBar, read_log, read_recipe
from adasparse.training.run_folder import RECIPE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "longcontext"
TASKS = ("sort", "reverse", "copy", "mqmtar", "flipflop")
METHODS = (
    ("softmax", "nape"),
    ("ssmax", "nape"),
    ("entmax", "nape"),
    ("asentmax", "nape"),
    ("asentmax-adaptive", "nape"),
    ("softmax", "rope"),
)
LANGUAGE_METHODS = (("softmax", "rope"), ("softmax", "nape"), ("asentmax", "nape"))
#: Multiples of the training length; beyond the last it doubles while anything is right.
FACTORS = (1, 1.5, 2, 4)
MAX_FACTOR = 64
EXAMPLES = 100
READ_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
READ_TOKENS, NEEDLES = 65_536, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--seeds", default="1", help="such as 1,2")
    parser.add_argument("--novels", type=Path, help="a folder of train.txt.gz and test.txt.gz")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    if options.novels is not None:
        for method in LANGUAGE_METHODS:
            result = run_language(*method, options.novels, options.work, options.threads)
            _write(f"lm-{'-'.join(method)}", result)
        return
    for task in options.task or TASKS:
        results = []
        for seed in map(int, options.seeds.split(",")):
            for method in METHODS:
                print(f"{task}, {' '.join(method)}, seed {seed}", file=sys.stderr)
                results.append(run_task(task, *method, seed, options.work, options.threads))
                _write(task, results)


def run_task(
    task: str, attention: str, positions: str, seed: int, work: Path, threads: int
) -> dict:
    output = work / f"{task}-{attention}-{positions}-{seed}"
    recipe = read_recipe(
        TaskRecipe,
        ROOT / "recipes" / "tasks" / f"{task}-tiny.yaml",
        [*_changes(attention, positions, threads), f"seed={seed}", f"output={output}"],
    )
    longest = recipe.lengths[1]
    lengths = [int(factor * longest) for factor in FACTORS]
    found = run_one(recipe, lengths, examples=EXAMPLES, progress=ProgressBar({}))
    scores = found["scores"]
    while scores[-1]["exact_match"] > 0 and scores[-1]["length"] < MAX_FACTOR * longest:
        scores += evaluate_run(output, [2 * scores[-1]["length"]], examples=EXAMPLES)["scores"]
    return {**found, **_about(recipe, output)}


def run_language(attention: str, positions: str, novels: Path, work: Path, threads: int) -> dict:
    output = work / f"lm-{attention}-{positions}"
    recipe = read_recipe(
        LanguageRecipe,
        ROOT / "recipes" / "lm-tiny.yaml",
        [
            *_changes(attention, positions, threads),
            f"data={novels / 'train.txt.gz'}",
            f"output={output}",
        ],
    )
    train_language(recipe, resume=(output / RECIPE).is_file(), progress=ProgressBar({}))
    found = evaluate_reading(
        output,
        novels / "test.txt.gz",
        READ_LENGTHS,
        max_tokens=READ_TOKENS,
        needles=NEEDLES,
    )
    return {**found, **_about(recipe, output)}


def _changes(attention: str, positions: str, threads: int) -> list[str]:
    return [f"attention={attention}", f"positions={positions}", f"threads={threads}"]


def _about(recipe: LongContextRecipe, output: Path) -> dict:
    """Return what else is published of a run."""
    log = [line for line in read_log(output / "log.jsonl") if "loss" in line]
    settings = asdict(recipe)
    settings["output"] = output.name
    settings.pop("data", None)
    return {
        # At the median speed: a run may have been interrupted.
        "minutes": median(y["time"] - x["time"] for x, y in pairwise(log)) * len(log) / 60,
        "loss": log[-1]["loss"],
        "recipe": settings,
        "machine": {"cpu": diagnostics.processor()["model"], "torch": torch.__version__},
    }


def _write(name: str, result: object) -> None:
    text = json.dumps(result, indent=1, ensure_ascii=False)
    write_atomically(RESULTS / f"{name}.json", text + "\n")


if __name__ == "__main__":
    main()
