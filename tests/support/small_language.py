"""A text and a training of a language model that takes a second."""

import functools
import gzip
import random
from pathlib import Path

import yaml

from adasparse.longcontext.lm import train_language
from adasparse.longcontext.recipe import LanguageRecipe
from support.small_runs import scratch

WORDS = ("the", "sea", "was", "calm", "and", "we", "sailed", "on", "by", "night", "Ädda", "7")
SETTINGS = {
    "attention": "asentmax", "positions": "nape", "layers": 1, "width": 16, "heads": 2, "ffn": 16,
    "vocab_size": 300, "context": 16, "dev_share": 0.1, "dev_tokens": 64, "max_steps": 6,
    "batch_size": 4, "learning_rate": 0.01, "warmup_steps": 1, "log_steps": 2, "eval_steps": 3,
    "save_steps": 3, "seed": 2, "threads": 1,
}  # fmt: skip


def novel(words: int, *, seed: int) -> str:
    """Sentences and paragraphs of random words."""
    rng = random.Random(seed)
    ends = (" ", " ", " ", ", ", ".\n", ".\n\n", "  ")
    return "".join(rng.choice(WORDS) + rng.choice(ends) for _ in range(words))


@functools.cache
def text_file() -> Path:
    path = scratch() / "novel.txt.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(novel(1500, seed=0))
    return path


@functools.cache
def held_out() -> Path:
    path = scratch() / "held-out.txt"
    path.write_text(novel(300, seed=1), encoding="utf-8")
    return path


def language_recipe(output: Path, **changes) -> LanguageRecipe:
    settings = {**SETTINGS, "data": str(text_file()), "output": str(output), **changes}
    return LanguageRecipe(**settings)


@functools.cache
def language_run() -> Path:
    return train_language(language_recipe(scratch() / "lm-run"))


@functools.cache
def language_file() -> Path:
    """A recipe without data and output."""
    path = scratch() / "lm.yaml"
    path.write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
    return path
