"""Time training and translating with sparse attention next to softmax by torch's SDPA.

    .venv/bin/python benchmarks/translation_speed.py --data data/m30k [--json]
    .venv/bin/python benchmarks/translation_speed.py --data data/m30k \
        --softmax runs/softmax --sparse runs/entmax --sparse runs/adaptive --text test.de

Training: one update on the same batches for every kind of attention, taking turns; the best time
of each batch counts, and speed is tokens (source and target, padding left out) a second. The tiny
and small recipes run on batches of the prepared data, and on batches of random 1,024-token
documents. Translating: all lines of --text by beam search with trained runs.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from adasparse.cli import machine
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
#: What is asked for: speed relative to softmax.
BARS = {
    ("sentences", "entmax"): 1.0,
    ("sentences", "adaptive"): 0.97,
    ("documents", "entmax"): 1.3,
}


def sentence_batches(data: PreparedData, recipe: TranslationRecipe, count: int) -> list[dict]:
    batches = TokenBatches(
        pair_lengths(data.train), max_tokens=recipe.batch_tokens, seed=0, num_batches=count
    )
    collate = PairCollator(data.tokenizer.pad_token_id)
    return [collate([data.train[i] for i in batch]) for batch in batches]


def document_batches(data: PreparedData, recipe: TranslationRecipe, count: int) -> list[dict]:
    """Random words: attention is what is timed, not what is learned."""
    generator = torch.Generator().manual_seed(0)
    shape = (max(1, recipe.batch_tokens // DOCUMENT), DOCUMENT)
    collate = PairCollator(data.tokenizer.pad_token_id)
    found = []
    for _ in range(count):
        source, target = (
            torch.randint(3, len(data.tokenizer), shape, generator=generator).tolist()
            for _ in range(2)
        )
        pairs = zip(source, target, strict=True)
        found.append(collate([{"input_ids": s, "labels": t} for s, t in pairs]))
    return found


def training_speed(
    recipe: TranslationRecipe, data: PreparedData, batches: list[dict], repeats: int
) -> dict[str, float]:
    """Return tokens a second of each kind of attention."""
    steps: dict[str, Callable[[dict], None]] = {}
    for attention in ATTENTION:
        values = {**vars(recipe), "attention": attention}
        steps[attention] = _step(TranslationRecipe(**values), data)
    best = {name: [float("inf")] * len(batches) for name in steps}
    for _ in range(repeats):
        for i, batch in enumerate(batches):
            for name, step in steps.items():
                start = time.perf_counter()
                step(batch)
                best[name][i] = min(best[name][i], time.perf_counter() - start)
    tokens = sum(count_tokens(batch) for batch in batches)
    return {name: tokens / sum(times) for name, times in best.items()}


def _step(recipe: TranslationRecipe, data: PreparedData) -> Callable[[dict], None]:
    model = build_model(recipe, data.tokenizer).train()
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
    loaded = {name: load_run(path) for name, path in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, (model, tokenizer) in loaded.items():
            start = time.perf_counter()
            translate(model, tokenizer, text, beam=5)
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: len(text) / seconds for name, seconds in best.items()}


def rows(options: argparse.Namespace) -> list[dict]:
    data = PreparedData.open(options.data)
    found = []
    for name in options.recipe or ["tiny", "small"]:
        path = RECIPES / f"{name}.yaml"
        recipe = read_recipe(TranslationRecipe, path, [f"data={options.data}", "output=unused"])
        for kind, make in (("sentences", sentence_batches), ("documents", document_batches)):
            print(f"{name}, {kind}", file=sys.stderr)
            batches = make(data, recipe, options.batches if kind == "sentences" else 2)
            speed = training_speed(recipe, data, batches, options.repeats)
            for attention in ATTENTION:
                found.append(
                    {
                        "what": f"training, {name}, {kind}",
                        "attention": attention,
                        "speed": speed[attention],
                        "ratio": speed[attention] / speed["softmax"],
                        "bar": BARS.get((kind, attention)),
                    }
                )
    if options.softmax:
        text = Path(options.text).read_text(encoding="utf-8").splitlines()
        runs = {"softmax": options.softmax, **{Path(x).name: x for x in options.sparse}}
        print("translating", file=sys.stderr)
        speed = translation_speed(runs, text, options.repeats)
        for name, value in speed.items():
            found.append(
                {
                    "what": f"translating {len(text)} sentences, beam 5",
                    "attention": name,
                    "speed": value,
                    "ratio": value / speed["softmax"],
                    "bar": None if name == "softmax" else 1.0,
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a prepared folder")
    parser.add_argument("--recipe", action="append", help="tiny, small; both if not given")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--softmax", help="a trained run")
    parser.add_argument("--sparse", action="append", default=[], help="a trained run")
    parser.add_argument("--text", help="sentences to translate")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = rows(options)
    if options.json:
        about = {
            "command": " ".join(["benchmarks/translation_speed.py", *sys.argv[1:]]),
            "cpu": machine.processor()["model"],
            "threads": torch.get_num_threads(),
            "repeats": options.repeats,
        }
        print(json.dumps({**about, "rows": found}, indent=2))
        return
    print(f"{torch.get_num_threads()} threads; tokens/s, or sentences/s")
    for row in found:
        bar = "" if row["bar"] is None else f"  bar {row['bar']}x"
        print(
            f"{row['what']:42}{row['attention']:12}{row['speed']:10,.0f}{row['ratio']:7.2f}x{bar}"
        )


if __name__ == "__main__":
    main()
