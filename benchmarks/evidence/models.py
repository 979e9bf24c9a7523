"""Pieces on pretrained models, each in a process of its own."""

import json
from typing import Any

from benchmarks.evidence.declared import Piece, read_pieces
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.trainings import rounded
from benchmarks.evidence.workshop import NotReadyError, Workshop


def pretrained(piece: Piece, workshop: Workshop) -> dict[str, Any]:
    """Sweep α, fine-tune a pretrained model, or time those that were fine-tuned."""
    folder = piece.folder(workshop.work)
    request, out = folder / "request.json", folder / "result.json"
    settings = {key: x for key, x in piece.settings.items() if key not in ("subject", "mode")}
    content = {
        "subject": piece.settings["subject"],
        "kind": piece.settings["mode"],
        "models": str(workshop.work / "models"),
        "data": str(workshop.data),
        "threads": workshop.threads,
        "seed": piece.seed,
        "settings": workshop.settings(settings),
        "evaluation": dict(piece.evaluation),
    }
    if piece.settings["mode"] == "speed":
        content["trained"] = _trained(piece, workshop)
    write_text(request, json.dumps(content))
    command = [workshop.python, "-m", "benchmarks.evidence.pretrained", request, out]
    workshop.run(command, log=folder / "messages.log")
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return {**rounded(found, 6)}


def _trained(piece: Piece, workshop: Workshop) -> dict[str, str]:
    """Return the folders of the fine-tuned models of the same subject by the names of runs."""
    name = f"{piece.settings['subject']}-finetune"
    runs = [x for x in read_pieces() if x.experiment == name and x.seed == piece.seed]
    folders = {x.run: x.folder(workshop.work) / "model" for x in runs}
    if not all((folder / "config.json").is_file() for folder in folders.values()):
        raise NotReadyError(f"{piece.name} needs the finished runs of {name}.")
    return {run: str(folder) for run, folder in folders.items()}
