"""Time training and translating with sparse attention next to softmax by torch's SDPA.

    .venv/bin/python benchmarks/translation_speed.py --data data/m30k [--json]
    .venv/bin/python benchmarks/translation_speed.py --data data/m30k \
        --softmax runs/softmax --entmax runs/entmax --adaptive runs/adaptive --text test.de

Training: one update on the same batches for every kind of attention, taking turns; the best time
of each batch counts, and speed is tokens (source and target, padding left out) a second. The tiny
and small recipes run on batches of the prepared data, and on batches of documents of 1,024 tokens,
which are its sentences one after the other. First weights are those of a fresh model, whose scores
are close to zero and whose heads are hardly sparse; with trained runs the same is timed with their
weights. Translating: all lines of --text by beam search with trained runs, 250 of similar lengths
at a time.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from adasparse import diagnostics
from adasparse.training import TokenBatches, read_recipe
from adasparse.training.trainer import count_tokens
from adasparse.translation.data import PreparedData
from adasparse.translation.decode import translate
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.runs import load_run
from adasparse.translation.train import pair_lengths

RECIPES = Path(__file__).parents[1] / "recipes"
ATTENTION = ("softmax", "entmax", "adaptive")
DOCUMENT = 1024
#: Sentences that are translated at a time.
PART = 250
#: What is asked for: speed relative to softmax.
BARS = {"sentences": {"entmax": 1.0, "adaptive": 0.97}, "documents": {"entmax": 1.3}}


def sentence_batches(data: PreparedData, recipe: TranslationRecipe, count: int) -> list[dict]:
    batches = TokenBatches(
        pair_lengths(data.train), max_tokens=recipe.batch_tokens, seed=0, num_batches=count
    )
    collate = PairCollator(data.tokenizer.pad_token_id)
    return [collate([data.train[i] for i in batch]) for batch in batches]


def document_batches(data: PreparedData, recipe: TranslationRecipe, count: int) -> list[dict]:
    """Sentences in the order of the corpus, joined to documents that end at the same length."""
    collate = PairCollator(data.tokenizer.pad_token_id)
    per_batch, pairs = max(1, recipe.batch_tokens // DOCUMENT), []
    document: dict[str, list[int]] = {"input_ids": [], "labels": []}
    for i in range(len(data.train)):
        for side, tokens in document.items():
            tokens.extend(data.train[i][side])
        if min(map(len, document.values())) >= DOCUMENT:
            pairs.append({side: tokens[:DOCUMENT] for side, tokens in document.items()})
            document = {"input_ids": [], "labels": []}
        if len(pairs) == count * per_batch:
            break
    return [collate(pairs[i : i + per_batch]) for i in range(0, len(pairs), per_batch)]


BATCHES = {"sentences": sentence_batches, "documents": document_batches}


def fresh_models(recipe: TranslationRecipe, data: PreparedData) -> dict[str, PreTrainedModel]:
    return {
        attention: build_model(
            TranslationRecipe(**{**vars(recipe), "attention": attention}), data.tokenizer
        )
        for attention in ATTENTION
    }


def best_seconds(
    functions: dict[str, Callable[[Any], object]], arguments: list[Any], repeats: int
) -> dict[str, float]:
    """Return the sum over the arguments of the best time of each function, which take turns."""
    names = list(functions)
    best = {name: [math.inf] * len(arguments) for name in names}
    for repeat in range(repeats):
        first = repeat % len(names)  # so that no one always comes after the same other
        for i, argument in enumerate(arguments):
            for name in names[first:] + names[:first]:
                start = time.perf_counter()
                functions[name](argument)
                best[name][i] = min(best[name][i], time.perf_counter() - start)
    return {name: sum(times) for name, times in best.items()}


def training_speed(
    models: dict[str, PreTrainedModel],
    recipe: TranslationRecipe,
    batches: list[dict],
    repeats: int,
) -> dict[str, float]:
    """Return tokens a second of each kind of attention."""
    steps = {name: _step(model.train(), recipe) for name, model in models.items()}
    tokens = sum(count_tokens(batch) for batch in batches)
    seconds = best_seconds(steps, batches, repeats)
    return {name: tokens / value for name, value in seconds.items()}


def _step(model: PreTrainedModel, recipe: TranslationRecipe) -> Callable[[dict], None]:
    # A rate of zero: every repeat sees the first weights.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    loss = TokenLoss(recipe.label_smoothing)

    def step(batch: dict) -> None:
        inputs = {name: x for name, x in batch.items() if name != "labels"}
        loss(model(**inputs), batch["labels"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def translation_speed(runs: dict[str, str], text: list[str], repeats: int) -> dict[str, float]:
    """Return sentences a second of each run."""
    text = sorted(text, key=len)  # parts of similar lengths, as translate() itself makes batches
    parts = [text[i : i + PART] for i in range(0, len(text), PART)]

    def translator(run: str) -> Callable[[list[str]], object]:
        model, tokenizer = load_run(run)
        return lambda part: translate(model, tokenizer, part, beam=5)

    seconds = best_seconds({name: translator(run) for name, run in runs.items()}, parts, repeats)
    return {name: len(text) / value for name, value in seconds.items()}


def relative(what: str, speed: dict[str, float], bars: dict[str, float]) -> list[dict]:
    return [
        {
            "what": what,
            "attention": name,
            "speed": value,
            "ratio": value / speed["softmax"],
            "bar": bars.get(name),
        }
        for name, value in speed.items()
    ]


def rows(options: argparse.Namespace) -> list[dict]:
    data = PreparedData.open(options.data)
    runs = {name: run for name in ATTENTION if (run := getattr(options, name))}
    found = []
    for name in options.recipe or ["tiny", "small"]:
        path = RECIPES / f"{name}.yaml"
        recipe = read_recipe(TranslationRecipe, path, [f"data={options.data}", "output=unused"])
        for kind, make in BATCHES.items():
            what = f"training, {name}, {kind}"
            print(what, file=sys.stderr)
            batches = make(data, recipe, options.batches if kind == "sentences" else 2)
            speed = training_speed(fresh_models(recipe, data), recipe, batches, options.repeats)
            found += relative(what, speed, BARS[kind])
            if name == "tiny" and runs:
                models = {attention: load_run(run)[0] for attention, run in runs.items()}
                speed = training_speed(models, recipe, batches, options.repeats)
                found += relative(f"{what}, trained weights", speed, BARS[kind])
    if runs and options.text:
        text = Path(options.text).read_text(encoding="utf-8").splitlines()
        what = f"translating {len(text):,} sentences, beam 5"
        print(what, file=sys.stderr)
        speed = translation_speed(runs, text, options.repeats)
        found += relative(what, speed, dict.fromkeys(ATTENTION[1:], 1.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a prepared folder")
    parser.add_argument("--recipe", action="append", help="tiny, small; both if not given")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    for attention in ATTENTION:
        parser.add_argument(f"--{attention}", help="a trained run of the tiny recipe")
    parser.add_argument("--text", help="sentences to translate")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if (options.entmax or options.adaptive) and not options.softmax:
        parser.error("trained runs are compared with one of softmax: give --softmax, too")
    found = rows(options)
    if options.json:
        about = {
            "command": " ".join(["benchmarks/translation_speed.py", *sys.argv[1:]]),
            "cpu": diagnostics.processor()["model"],
            "threads": torch.get_num_threads(),
            "repeats": options.repeats,
        }
        print(json.dumps({**about, "rows": found}, indent=2))
        return
    print(f"{torch.get_num_threads()} threads; tokens/s, or sentences/s")
    for row in found:
        bar = "" if row["bar"] is None else f"  bar {row['bar']}x"
        print(
            f"{row['what']:50}{row['attention']:12}{row['speed']:10,.0f}{row['ratio']:7.2f}x{bar}"
        )


if __name__ == "__main__":
    main()
