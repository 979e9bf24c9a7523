"""Texts that pretrained models are fine-tuned and measured on."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


def read_lines(path: Path) -> list[str]:
    """Return the lines of a gzipped file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


class ScoredPair(NamedTuple):
    """Two sentences and how alike they are, from 0 to 5."""

    score: float
    first: str
    second: str


def sts_pairs(data: Path, split: str) -> list[ScoredPair]:
    """Return the pairs of STS-B."""
    rows = (line.split("\t") for line in read_lines(data / "sts-b" / f"{split}.tsv.gz"))
    return [ScoredPair(float(score), first, second) for score, first, second in rows]


def distillation_sentences(data: Path) -> list[str]:
    """Return sentences without labels: those of STS-B's training part, and captions."""
    pairs = sts_pairs(data, "train")
    captions = read_lines(data / "multi30k" / "train.en.gz")
    return sorted({x for pair in pairs for x in (pair.first, pair.second)} | set(captions))


def novel(data: Path, split: str) -> str:
    """Return the text of the novels of a split."""
    return "\n".join(read_lines(data / "lm" / "gutenberg_novels" / f"{split}.txt.gz"))


def wikitext(data: Path) -> str:
    """Return the validation part of WikiText-2, tokenized as published."""
    return "\n".join(read_lines(data / "lm" / "wikitext2" / "valid.txt.gz"))


def lambada(data: Path) -> list[tuple[str, str]]:
    """Return passages without their last word, and that word."""
    texts = [json.loads(x)["text"] for x in read_lines(data / "lm" / "lambada" / "test.jsonl.gz")]
    return [(text.rpartition(" ")[0], text.rpartition(" ")[2]) for text in texts]


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def news_pairs(data: Path, split: str, *, train: int = 3000) -> list[SentencePair]:
    """Return pairs of newstest2018 zh-en: ``train`` of them drawn at random, the rest as test."""
    sides = [read_lines(data / "wmt_zh-en" / f"newstest2018.{x}.gz") for x in ("zh", "en")]
    pairs = [SentencePair(*x) for x in zip(*sides, strict=True)]
    order = list(range(len(pairs)))
    random.Random(2018).shuffle(order)
    chosen = {"train": order[:train], "test": sorted(order[train:])}[split]
    return [pairs[i] for i in chosen]


def some(values: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Return so many of the values, drawn with replacement."""
    return [values[rng.randrange(len(values))] for _ in range(count)]
