"""Language models on novels with retrieval passages, read far beyond their training length."""

import json
from pathlib import Path
from typing import Any

from benchmarks.evidence.declared import Piece
from benchmarks.evidence.pretrained.data import novel
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.trainings import (
    curve,
    last_checkpoint,
    read_log,
    rounded,
    train,
    training_minutes,
)
from benchmarks.evidence.workshop import Workshop


def language(piece: Piece, workshop: Workshop) -> dict[str, Any]:
    """Train, read a held-out novel at every length, and look for needles."""
    folder = piece.folder(workshop.work)
    own = {"retrieval", "max_steps"}
    settings = {key: x for key, x in piece.settings.items() if key not in own}
    settings |= {"data": str(_mixed(piece, workshop)), "seed": piece.seed}
    steps = piece.settings["max_steps"]
    output = train(("lm", "train"), settings, folder, workshop, max_steps=steps)
    log = read_log(output)
    return {
        "minutes": training_minutes(log),
        "curve": curve(log, "dev_loss"),
        "losses": curve(log, "loss"),
        **_reading(piece, folder, last_checkpoint(output), workshop),
    }


def _mixed(piece: Piece, workshop: Workshop) -> Path:
    """Return the file of the training text: novels in which facts are stated and asked for."""
    options = piece.settings["retrieval"]
    name = "-".join(f"{key}{x:g}" for key, x in sorted(options.items()))
    path = workshop.work / "texts" / f"novels-{name}.txt"
    if not path.is_file():
        from adasparse.longcontext.retrieval import add_retrieval

        write_text(path, add_retrieval(novel(workshop.data, "train"), **options))
    return path


def _reading(piece: Piece, folder: Path, run: Path, workshop: Workshop) -> dict[str, Any]:
    """Read a novel length by length: perplexity, and needles at every depth."""
    text = workshop.data / "lm" / "gutenberg_novels" / "test.txt.gz"
    options = [f"--{key}={piece.evaluation[key]}" for key in ("tokens", "needles")]
    perplexity, needles = [], []
    for length in piece.evaluation["lengths"]:
        path = run / f"reading-{length}-{'-'.join(options)}.json"
        if not path.is_file():
            command = ("lm", "eval", run, "--text", text, "--lengths", str(length), *options)
            output = workshop.adasparse(*command, "--json", log=folder / "messages.log")
            write_text(path, output)
        found = json.loads(path.read_text(encoding="utf-8"))
        perplexity += found["perplexity"]["lengths"]
        needles += found["needles"]["scores"] if found["needles"] else []
    return {"perplexity": rounded(perplexity, 6), "needles": rounded(needles)}
