"""Prepared data and trainings that take a second, shared by tests of training and translation."""

import atexit
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from adasparse.training import read_log
from adasparse.translation.prepare import prepare
from adasparse.translation.recipe import TranslationRecipe

NUMBERS = {
    "eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five", "sechs": "six",
    "sieben": "seven", "acht": "eight", "neun": "nine", "zehn": "ten",
}  # fmt: skip

#: One layer on each side; everything happens within a dozen steps.
SETTINGS = {
    "attention": "adaptive", "encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2,
    "ffn": 16, "max_positions": 64, "dropout": 0.1, "attention_dropout": 0.1,
    "activation_dropout": 0.1, "max_steps": 12, "batch_tokens": 64, "learning_rate": 0.01,
    "warmup_steps": 4, "log_steps": 3, "eval_steps": 6, "save_steps": 4, "average": 2, "seed": 3,
    "weight_decay": 0.01, "threads": 1,
}  # fmt: skip


@functools.cache
def scratch() -> Path:
    """A folder that is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="adasparse-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def sentences(number: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Different rows of German numbers, and the English ones."""
    rng, found = random.Random(seed), {}
    while len(found) < number:
        words = rng.choices(list(NUMBERS), k=rng.randint(1, 9))
        found[" ".join(words)] = " ".join(NUMBERS[word] for word in words)
    return list(found.items())


@functools.cache
def small_data(pairs: int = 60, seed: int = 0) -> Path:
    """A prepared folder of such pairs; 8 of them, none of the longest, to score with."""
    folder = scratch() / f"data-{pairs}-{seed}"
    texts = scratch() / f"text-{pairs}-{seed}"
    texts.mkdir()
    made = sorted(sentences(pairs, seed=seed), key=lambda pair: len(pair[0].split()) > 7)
    for split, part in (("dev", made[:8]), ("train", made[8:])):
        for side, text in zip(("de", "en"), zip(*part, strict=True), strict=True):
            (texts / f"{split}.{side}").write_text("".join(f"{x}\n" for x in text), "utf-8")
    prepare(
        train=[(texts / "train.de", texts / "train.en")],
        dev=(texts / "dev.de", texts / "dev.en"),
        out=folder,
        vocab_size=600,
    )
    return folder


def small_recipe(output: Path, **changes: object) -> TranslationRecipe:
    """Settings for a second of training."""
    return TranslationRecipe(
        **{**SETTINGS, "data": str(small_data()), **changes}, output=str(output)
    )


def small_run(attention: str = "adaptive") -> Path:
    """A finished training that nobody changes."""
    return _small_run(attention)


@functools.cache
def _small_run(attention: str) -> Path:
    from adasparse.translation.train import train

    return train(small_recipe(scratch() / f"run-{attention}", attention=attention))


@functools.cache
def recipe_file() -> Path:
    """The settings as a file."""
    path = scratch() / "small.yaml"
    path.write_text(yaml.safe_dump(SETTINGS), "utf-8")
    return path


def command(*arguments: object) -> list[str]:
    """The command line of ``adasparse``, for a process of its own."""
    return [sys.executable, "-m", "adasparse", *map(str, arguments)]


def train_command(output: Path, *changes: str, data: Path | None = None) -> list[str]:
    """The command line of a small training."""
    where = (f"data={data or small_data()}", f"output={output}")
    return command("train", recipe_file(), *where, *changes)


def run(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command on one thread and return what it said."""
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
        **options,
    )


def log_of(output: Path) -> list[dict[str, object]]:
    """The log without what a clock says."""
    timed = {"time", "tokens_per_second"}
    return [{k: v for k, v in x.items() if k not in timed} for x in read_log(output / "log.jsonl")]


def state_of(output: Path) -> dict[str, bytes]:
    """What must be the same whatever happened on the way: weights, optimizers, results."""
    names = ["model.safetensors", "config.json", "README.md", "results.json"]
    last = max(
        (output / "checkpoints").glob("checkpoint-*"), key=lambda x: int(x.name.split("-")[1])
    )
    names += [
        f"{last.relative_to(output)}/{x}" for x in ("model.safetensors", "optimizer.safetensors")
    ]
    return {name: (output / name).read_bytes() for name in names}


def assert_same_run(one: Path, two: Path) -> None:
    """Compare two finished trainings."""
    first, second = state_of(one), state_of(two)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert log_of(one) == log_of(two)


def results_of(output: Path) -> dict[str, object]:
    """What a run says of itself."""
    return json.loads((output / "results.json").read_text("utf-8"))
