"""Train, translate and score the published translation models, one result file for each.

    .venv/bin/python benchmarks/translation_runs.py --corpora DATA --work runs [--pair de-en] \
        [--attention adaptive] [--threads 1]

DATA holds the corpora as folders of aligned, gzipped files, such as multi30k/train.de.gz. What has
been done is kept in --work and not done again; an interrupted training goes on. Results go to
benchmarks/results/translation/PAIR-ATTENTION.json; benchmarks/translation_report.py makes the page
docs/results/translation.md from them.
"""

import argparse
import gzip
import json
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from adasparse import diagnostics
from adasparse._files import write_atomically
from adasparse.training import ProgressBar, read_log, read_recipe
from adasparse.translation.data import PreparedData
from adasparse.translation.decode import translate
from adasparse.translation.prepare import prepare
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.runs import load_run
from adasparse.translation.score import score
from adasparse.translation.train import train

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "translation"
ATTENTION = ("softmax", "entmax", "adaptive")
BEAM = 5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A corpus and a direction."""

    corpus: str
    source: str
    target: str
    tests: tuple[str, ...]
    dev: str = "val"
    vocabulary: int = 4000
    changes: tuple[str, ...] = field(default=())


MULTI30K = ("test_2016_flickr", "test_2017_flickr")
PAIRS = {
    "de-en": Pair(corpus="multi30k", source="de", target="en", tests=MULTI30K),
    "en-de": Pair(corpus="multi30k", source="en", target="de", tests=MULTI30K),
    "ja-en": Pair(
        corpus="small_parallel_enja",
        source="ja",
        target="en",
        tests=("test",),
        dev="dev",
        changes=("max_steps=3600", "warmup_steps=600", "schedule=linear"),
    ),
    "ro-en": Pair(
        corpus="roen_mixed",
        source="ro",
        target="en",
        tests=("test", "test_newstest2016"),
        dev="dev",
        vocabulary=8000,
        changes=("max_steps=3600", "warmup_steps=600", "schedule=linear"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pair", action="append", choices=PAIRS)
    parser.add_argument("--attention", action="append", choices=ATTENTION)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    for name in options.pair or PAIRS:
        for attention in options.attention or ATTENTION:
            print(f"{name}, {attention}", file=sys.stderr)
            result = run(name, attention, options.corpora, options.work, options.threads)
            RESULTS.mkdir(parents=True, exist_ok=True)
            path = RESULTS / f"{name}-{attention}.json"
            write_atomically(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def run(name: str, attention: str, corpora: Path, work: Path, threads: int) -> dict:
    pair, data = PAIRS[name], work / f"data-{name}"
    corpus = corpora / pair.corpus
    if not data.is_dir():
        prepare(
            train=[[corpus / f"train.{x}.gz" for x in (pair.source, pair.target)]],
            dev=[corpus / f"{pair.dev}.{x}.gz" for x in (pair.source, pair.target)],
            out=data,
            vocab_size=pair.vocabulary,
        )
    output = work / f"{name}-{attention}"
    changes = [f"data={data}", f"output={output}", f"attention={attention}", f"threads={threads}"]
    recipe = read_recipe(
        TranslationRecipe, ROOT / "recipes" / "tiny.yaml", [*changes, *pair.changes]
    )
    train(recipe, resume=output.is_dir(), progress=ProgressBar({"eval_bleu": "dev BLEU"}))
    model, tokenizer = load_run(output)
    tests = {}
    for test in pair.tests:
        source, target = (
            gzip.decompress((corpus / f"{test}.{x}.gz").read_bytes()).decode().splitlines()
            for x in (pair.source, pair.target)
        )
        found = translate(model, tokenizer, source, beam=BEAM)
        tests[test] = score([best[0].text for best in found], target).to_dict()
    log = read_log(output / "log.jsonl")
    steps = [line for line in log if "loss" in line]
    speed = statistics.median(line["tokens_per_second"] for line in steps)
    prepared = PreparedData.open(data)
    tokens = int(prepared.train.source_lengths.sum() + prepared.train.target_lengths.sum())
    settings = asdict(recipe)
    settings["data"], settings["output"] = f"data-{name}", f"{name}-{attention}"
    return {
        "pair": name,
        "corpus": pair.corpus,
        "attention": attention,
        "tests": tests,
        "beam": BEAM,
        "development": json.loads((output / "results.json").read_text()),
        "tokens_per_second": speed,
        "training_minutes": steps[-1]["epoch"] * tokens / speed / 60,
        "threads": recipe.threads,
        "machine": {"cpu": diagnostics.processor()["model"], "torch": torch.__version__},
        "pairs": len(prepared.train),
        "vocabulary": len(prepared.tokenizer),
        "recipe": settings,
        "dev": [
            {key: line[key] for key in ("step", "dev_loss", "dev_bleu")}
            for line in log
            if "dev_bleu" in line
        ],
        "alpha": [
            {"step": line["step"], "alpha": _rounded(line["alpha"])}
            for line in steps
            if "alpha" in line and (line["step"] % 500 == 0 or line["step"] == 50)
        ],
    }


def _rounded(alpha: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [round(x, 4) for x in values] for name, values in alpha.items()}


if __name__ == "__main__":
    main()
