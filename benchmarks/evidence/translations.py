"""Translation models: prepared, trained, and scored sentence by sentence."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.evidence.declared import Piece
from benchmarks.evidence.scores import score
from benchmarks.evidence.trainings import curve, read_log, rounded, train, training_minutes
from benchmarks.evidence.workshop import Workshop

#: Settings that are not those of a recipe.
_OWN = {"corpus", "source", "target", "dev", "vocab_size", "max_steps"}


def translation(piece: Piece, workshop: Workshop) -> dict[str, Any]:
    """Train and score a model."""
    folder = piece.folder(workshop.work)
    data = prepared_data(piece, workshop)
    settings = {key: x for key, x in piece.settings.items() if key not in _OWN}
    settings |= {"data": str(data), "seed": piece.seed}
    steps = piece.settings["max_steps"]
    output = train(("train",), settings, folder, workshop, max_steps=steps)
    log = read_log(output)
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    return {
        "minutes": training_minutes(log),
        "curve": curve(log, "dev_bleu", "dev_loss"),
        "alpha": curve(log, "alpha"),
        "development": rounded(json.loads((output / "results.json").read_text())),
        "manifest": {key: manifest[key] for key in ("pairs", "vocab_size") if key in manifest},
        "tests": {
            test: _score(piece, test, folder, output, workshop)
            for test in piece.evaluation["tests"]
        },
    }


def prepared_data(piece: Piece, workshop: Workshop) -> Path:
    """Return the folder of the prepared data, which all runs of a corpus share."""
    settings = piece.settings
    corpus, source, target = (settings[key] for key in ("corpus", "source", "target"))
    folder = workshop.work / "texts" / f"{corpus}-{source}-{target}-{settings['vocab_size']}"
    if folder.is_dir():
        return folder
    own = workshop.data / corpus
    sides = {
        split: [str(own / f"{split}.{side}.gz") for side in (source, target)]
        for split in ("train", settings["dev"])
    }
    partial = folder.with_name(f".{folder.name}.{piece.seed}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    workshop.adasparse(
        *("prepare", "--train", *sides["train"], "--dev", *sides[settings["dev"]]),
        *("--source-lang", source, "--target-lang", target),
        *("--vocab-size", str(settings["vocab_size"]), "--out", partial),
        log=piece.folder(workshop.work) / "messages.log",
    )
    if not folder.is_dir():
        partial.rename(folder)
    return folder


def _score(piece: Piece, test: str, folder: Path, run: Path, workshop: Workshop) -> dict[str, Any]:
    """Translate a test set; return its scores, and the statistics of each sentence for BLEU."""
    beam = piece.evaluation["beam"]
    path = folder / f"{test}-{beam}.txt"
    corpus = workshop.data / piece.settings["corpus"]
    if not path.is_file():
        source = folder / f"{test}.source"
        source.write_bytes(
            gzip.decompress((corpus / f"{test}.{piece.settings['source']}.gz").read_bytes())
        )
        partial = path.with_suffix(".partial")
        command = ("translate", run, source, "--beam", str(beam), "--output", partial)
        workshop.adasparse(*command, log=folder / "messages.log")
        partial.rename(path)
    target = gzip.decompress((corpus / f"{test}.{piece.settings['target']}.gz").read_bytes())
    return score(path.read_text(encoding="utf-8").splitlines(), target.decode().splitlines())
