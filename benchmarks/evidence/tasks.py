"""Long-context tasks: trained until solved and as long again, scored up to 1024 times as long."""

import json
from pathlib import Path
from typing import Any

from benchmarks.evidence.declared import Piece
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

#: Exact match on development data at the training length from which a task counts as solved.
SOLVED = 0.99
#: Up to this multiple a length has as many examples as declared, beyond it ``few_examples``.
_MANY = 64


def task(piece: Piece, workshop: Workshop) -> dict[str, Any]:
    """Train, score at growing lengths, and measure the dispersion of the first seed."""
    folder = piece.folder(workshop.work)
    output = _train(piece, folder, workshop)
    last = last_checkpoint(output)
    log = read_log(output)
    result = {
        "minutes": training_minutes(log),
        "steps": log[-1]["step"],
        "solved_at": solved_at(log, piece.settings["max_length"]),
        "curve": curve(log, f"dev_exact_match_{piece.settings['max_length']}"),
        "losses": curve(log, "loss"),
        "scores": _scores(piece, folder, last, workshop),
    }
    factors = piece.evaluation.get("dispersion")
    if factors and piece.seed == 1:
        result["dispersion"] = _dispersion(piece, folder, last, factors, workshop)
    return result


def _train(piece: Piece, folder: Path, workshop: Workshop) -> Path:
    """Train for the declared number of steps, twice and four times that if it was not enough."""
    settings = {
        key: x for key, x in piece.settings.items() if key not in ("max_steps", "doublings")
    }
    settings["seed"] = piece.seed
    steps = piece.settings["max_steps"]
    for doubling in range(piece.settings.get("doublings", 0) + 1):
        steps = piece.settings["max_steps"] * 2**doubling
        output = train(("tasks", "train"), settings, folder, workshop, max_steps=steps)
        solved = solved_at(read_log(output), piece.settings["max_length"])
        if solved is not None and 2 * solved <= steps:
            break
    return output


def solved_at(log: list[dict[str, Any]], length: int) -> int | None:
    """Return the first step whose score at the training length counts as solved."""
    name = f"dev_exact_match_{length}"
    return next((x["step"] for x in log if x.get(name, 0.0) >= SOLVED), None)


def _scores(piece: Piece, folder: Path, run: Path, workshop: Workshop) -> list[dict[str, Any]]:
    """Score at every declared multiple, shortest first, until nothing is right any more."""
    scores: list[dict[str, Any]] = []
    for factor in piece.evaluation["factors"]:
        examples = piece.evaluation["examples" if factor <= _MANY else "few_examples"]
        length = int(factor * piece.settings["max_length"])
        path = run / f"score-{length}-{examples}.json"
        if not path.is_file():
            options = ("--lengths", str(length), "--examples", str(examples), "--json")
            text = workshop.adasparse("tasks", "eval", run, *options, log=folder / "messages.log")
            write_text(path, text)
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["stopped"]:
            break
        scores += found["scores"]
        if factor >= 4 and all(x["exact_match"] == 0 for x in scores[-2:]):
            break
    names = ("length", "examples", "exact_match", "token_accuracy")
    return [rounded({name: score[name] for name in names}) for score in scores]


def _dispersion(
    piece: Piece, folder: Path, run: Path, factors: list[int], workshop: Workshop
) -> dict[str, Any]:
    """Measure how the attention of each head spreads out with length."""
    lengths = ",".join(str(int(factor * piece.settings["max_length"])) for factor in factors)
    path = run / f"heads-{lengths}.json"
    if not path.is_file():
        out = folder / "heads"
        options = ("--lengths", lengths, "--examples", "20", "--out", out, "--json")
        text = workshop.adasparse("tasks", "heads", run, *options, log=folder / "messages.log")
        write_text(path, text)
    (found,) = json.loads(path.read_text(encoding="utf-8"))
    return {"lengths": rounded(found["lengths"])}
