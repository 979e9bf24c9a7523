"""Trainings by the command line, and the contents of their logs."""

import json
import math
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.evidence.runner import write_text
from benchmarks.evidence.workshop import Workshop

#: Folder of the training, in that of the piece.
TRAINED = "trained"
#: Points of a trajectory that are published.
_POINTS = 24


def train(
    command: tuple[str, ...],
    settings: Mapping[str, Any],
    folder: Path,
    workshop: Workshop,
    *,
    max_steps: int,
) -> Path:
    """Train up to ``max_steps``, from wherever it was left; return the folder of the run."""
    output = folder / TRAINED
    if trained_steps(output) >= max_steps:
        return output
    recipe = folder / "recipe.yaml"
    values = {
        **workshop.settings(settings),
        "max_steps": max_steps,
        "threads": workshop.threads,
        "output": str(output),
    }
    # JSON is YAML: floats stay floats, lists stay lists.
    write_text(recipe, "".join(f"{key}: {json.dumps(x)}\n" for key, x in values.items()))
    resume = ("--resume",) if (output / "recipe.yaml").is_file() else ()
    workshop.adasparse(*command, recipe, *resume, log=folder / "messages.log")
    return output


def trained_steps(output: Path) -> int:
    """Return the updates of a finished training, 0 if it is not finished."""
    path = output / "results.json"
    return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.is_file() else 0


def read_log(output: Path) -> list[dict[str, Any]]:
    """Return the lines of a training's log, those of a torn line and of repeated steps left out."""
    found: dict[tuple[int, bool], dict[str, Any]] = {}
    for line in (output / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[entry["step"], "loss" in entry] = entry
    return sorted(found.values(), key=lambda entry: entry["step"])


def training_minutes(log: list[dict[str, Any]]) -> float:
    """Return the duration at the median speed: a training may have been interrupted."""
    steps = [line for line in log if "loss" in line]
    if len(steps) < 2:
        return 0.0
    per_step = median((y["time"] - x["time"]) / (y["step"] - x["step"]) for x, y in pairwise(steps))
    return round(per_step * steps[-1]["step"] / 60, 2)


def curve(log: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Return some numbers of the log at evenly spaced steps."""
    lines = [line for line in log if all(name in line for name in names)]
    every = max(1, math.ceil(len(lines) / _POINTS))
    kept = lines[every - 1 :: every]
    if lines and lines[-1] is not kept[-1]:
        kept.append(lines[-1])
    return [{"step": x["step"], **{name: rounded(x[name]) for name in names}} for x in kept]


def rounded(value: Any, digits: int = 4) -> Any:
    """Return numbers in lists and dictionaries with so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(x, digits) for key, x in value.items()}
    return [rounded(x, digits) for x in value] if isinstance(value, list) else value


def last_checkpoint(output: Path) -> Path:
    """Return a folder beside a run that holds its last checkpoint as a run of its own.

    The model of a run is the one with the best score on development data, which may prefer an
    early one where scores are all zero.
    """
    steps = trained_steps(output)
    folder = output.with_name("last")
    checkpoint = output / "checkpoints" / f"checkpoint-{steps}"
    stamp = folder / "step.txt"
    if stamp.is_file() and stamp.read_text() == str(steps):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in output.iterdir():
        if path.is_file() and path.name not in ("log.jsonl", "eval.json"):
            shutil.copyfile(path, folder / path.name)
    shutil.copyfile(checkpoint / "model.safetensors", folder / "model.safetensors")
    stamp.write_text(str(steps))
    return folder
