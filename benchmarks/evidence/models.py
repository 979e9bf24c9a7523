"""Pieces on pretrained models, each in a process of its own."""

import json
from typing import Any

from benchmarks.evidence.declared import Piece
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.trainings import rounded
from benchmarks.evidence.workshop import Workshop


def pretrained(piece: Piece, workshop: Workshop) -> dict[str, Any]:
    """Sweep α or fine-tune a pretrained model."""
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
        "settings": settings,
        "evaluation": dict(piece.evaluation),
    }
    write_text(request, json.dumps(content))
    command = [workshop.python, "-m", "benchmarks.evidence.pretrained", request, out]
    workshop.run(command, log=folder / "messages.log")
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return {**rounded(found, 6)}
