"""The demo from end to end: generate a corpus, prepare, train, translate, score."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adasparse._files import check_output_folder, write_atomically
from adasparse.demo.grammar import GeneratedCorpus, generate
from adasparse.integrations.huggingface.measure import current_alpha
from adasparse.training import ProgressBar, read_log
from adasparse.training.run_folder import LOG
from adasparse.translation.decode import translate
from adasparse.translation.prepare import prepare
from adasparse.translation.recipe import Attention, TranslationRecipe
from adasparse.translation.runs import load_run
from adasparse.translation.score import score
from adasparse.translation.train import train

RESULTS = "results.json"
#: Sentences to train on, for development, and to test on.
SIZES = {"train": 30_000, "dev": 200, "test": 1000}
VOCABULARY = 2000
STEPS = 1350
#: Two layers each way, for two cores and a minute or two.
RECIPE: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "width": 128,
    "heads": 4,
    "ffn": 256,
    "max_positions": 256,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "learning_rate": 3e-3,
    "warmup_steps": 150,
    "schedule": "linear",
    "batch_tokens": 1024,
    "average": 0,
    "keep": 2,
}


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """Results of a demo.

    Args:
        pair: Source and target language.
        bleu: BLEU on test sentences that were not trained on.
        chrf: chrF on the same sentences.
        exact_match: Share of test sentences translated word for word.
        tokens_per_second: Training speed, the median over its log.
        alpha: Alpha of each head, by attention module; empty for softmax.
        steps: Number of updates.
        seconds: Wall-clock time.
        translations: Some test sentences: source, reference and translation.
    """

    pair: str
    bleu: float
    chrf: float
    exact_match: float
    tokens_per_second: float
    alpha: Mapping[str, Sequence[float]]
    steps: int
    seconds: float
    translations: Sequence[tuple[str, str, str]]


def run_demo(
    out: str | Path,
    *,
    pair: str = "de-en",
    attention: Attention = "adaptive",
    steps: int = STEPS,
    seed: int = 1,
    report: Callable[[str], None] = lambda message: None,
    progress: ProgressBar | None = None,
) -> DemoResult:
    """Generate a corpus, train on it and translate sentences that were never seen.

    Args:
        out: Folder for ``corpus/``, ``data/``, ``run/``, ``translations.tsv`` and
            ``results.json``: a new one, or that of an earlier demo, which is replaced.
        pair: Source and target language, one of ``adasparse.demo.grammar.PAIRS``.
        attention: Attention as in a recipe.
        steps: Updates of the weights.
        seed: Seed of the corpus and of training.
        report: Called with messages for the user.
        progress: Progress display; nothing is shown if None.
    """
    start = time.perf_counter()
    out = Path(out)
    _check_free(out)
    recipe = TranslationRecipe(
        **RECIPE,
        data=str(out / "data"),
        output=str(out / "run"),
        attention=attention,
        seed=seed,
        max_steps=steps,
        log_steps=min(25, steps),
        eval_steps=steps,
        save_steps=steps,
    )
    corpus = generate(pair, **SIZES, seed=seed)
    _clear(out)
    _write_corpus(corpus, out / "corpus")
    source, target = corpus.source_lang, corpus.target_lang
    report(f"{len(corpus.train):,} generated sentence pairs, {source} → {target}.")
    training, development = (
        [out / "corpus" / f"{name}.{x}" for x in (source, target)] for name in ("train", "dev")
    )
    prepare(train=[training], dev=development, out=out / "data", vocab_size=VOCABULARY, seed=seed)
    train(recipe, progress=progress)
    model, tokenizer = load_run(out / "run")
    references = [reference for _, reference in corpus.test]
    found = translate(model, tokenizer, [text for text, _ in corpus.test], beam=1)
    texts = [best[0].text for best in found]
    rows = [(s, r, t) for (s, r), t in zip(corpus.test, texts, strict=True)]
    scores = score(texts, references)
    speeds = sorted(x["tokens_per_second"] for x in read_log(out / "run" / LOG) if "loss" in x)
    result = DemoResult(
        pair=pair,
        bleu=scores.bleu,
        chrf=scores.chrf,
        exact_match=sum(r == t for _, r, t in rows) / len(rows),
        tokens_per_second=speeds[len(speeds) // 2],
        alpha={name: alpha.tolist() for name, alpha in current_alpha(model).items()},
        steps=steps,
        seconds=time.perf_counter() - start,
        translations=rows[:10],
    )
    write_atomically(out / "translations.tsv", "".join("\t".join(row) + "\n" for row in rows))
    write_atomically(out / RESULTS, json.dumps(asdict(result), indent=2, ensure_ascii=False))
    return result


def _check_free(out: Path) -> None:
    """Refuse a folder with something else than an earlier demo."""
    check_output_folder(out)
    if out.exists() and any(out.iterdir()) and not (out / "corpus").is_dir():
        raise ValueError(
            f"The folder of a demo must be new, empty, or that of an earlier demo; {out} is not."
        )


def _clear(out: Path) -> None:
    """Remove an earlier demo."""
    for name in ("corpus", "data", "run", "report"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (RESULTS, "translations.tsv"):
        (out / name).unlink(missing_ok=True)


def _write_corpus(corpus: GeneratedCorpus, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in SIZES:
        pairs = getattr(corpus, name)
        for side, lang in enumerate((corpus.source_lang, corpus.target_lang)):
            lines = "".join(pair[side] + "\n" for pair in pairs)
            write_atomically(folder / f"{name}.{lang}", lines)
