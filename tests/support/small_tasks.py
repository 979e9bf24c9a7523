"""Trainings on tasks that take a second."""

import functools
from pathlib import Path

import yaml

from adasparse.longcontext.recipe import TaskRecipe
from adasparse.longcontext.train import train_task
from support.small_runs import scratch

#: Everything happens within eight steps.
SETTINGS = {
    "task": "copy", "attention": "asentmax-adaptive", "positions": "nape", "layers": 1, "width": 16,
    "heads": 2, "ffn": 16, "dropout": 0.1, "max_steps": 8, "batch_size": 8, "min_length": 3,
    "max_length": 5, "learning_rate": 0.01, "warmup_steps": 2, "log_steps": 2, "eval_steps": 4,
    "save_steps": 4, "eval_examples": 4, "seed": 3, "threads": 1,
}  # fmt: skip


def task_recipe(output: Path, **changes) -> TaskRecipe:
    return TaskRecipe(**{**SETTINGS, "output": str(output), **changes})


@functools.cache
def task_run() -> Path:
    """A run that ended."""
    return train_task(task_recipe(scratch() / "task-run"))


@functools.cache
def task_file() -> Path:
    """A recipe without an output."""
    path = scratch() / "task.yaml"
    path.write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
    return path
