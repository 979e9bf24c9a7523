"""Heads of finished translation models, measured and drawn by ``adasparse analyze``."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.evidence.declared import Piece, read_pieces
from benchmarks.evidence.trainings import TRAINED, rounded, trained_steps
from benchmarks.evidence.translations import prepared_data
from benchmarks.evidence.workshop import NotReadyError, Workshop

#: Measures that the page shows, of those that the analysis makes.
_VALUES = ("alpha", "density", "previous", "next", "self", "merging", "interrogation")
_INTERVALS = ("merging", "interrogation")


def heads(piece: Piece, workshop: Workshop) -> dict[str, Any]:
    """Analyze the models of another experiment; its figures go beside the log."""
    settings = piece.settings
    runs = [
        x for x in read_pieces() if x.experiment == settings["experiment"] and x.seed == piece.seed
    ]
    folders = [x.folder(workshop.work) / TRAINED for x in runs]
    if not all(trained_steps(x) for x in folders):
        raise NotReadyError(f"{piece.name} needs the finished runs of {settings['experiment']}.")
    folder = piece.folder(workshop.work)
    out = folder / "report"
    if not (out / "measures.json").is_file():
        data = prepared_data(runs[0], workshop)
        options = ("--data", data, "--sentences", str(settings["sentences"]), "--out", out)
        workshop.adasparse("analyze", *folders, *options, log=folder / "messages.log")
    figures = figures_folder(piece.log(workshop.results))
    shutil.rmtree(figures, ignore_errors=True)
    shutil.copytree(out / "figures", figures, ignore=shutil.ignore_patterns("*.png"))
    measures = json.loads((out / "measures.json").read_text(encoding="utf-8"))
    return {"sentences": measures["sentences"], "runs": [_run(x) for x in measures["runs"]]}


def figures_folder(log: Path) -> Path:
    """Return the folder of the figures that belong to a log."""
    return log.with_name(f"{log.stem}-figures")


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a run."""
    groups = [
        {
            "kind": group["kind"],
            "layers": group["layers"],
            "values": {x: group["values"][x] for x in _VALUES if x in group["values"]},
            "intervals": {x: group["intervals"][x] for x in _INTERVALS if x in group["intervals"]},
            "layer_values": {"diversity": group["layer_values"]["diversity"]},
        }
        for group in run["groups"]
    ]
    result: dict[str, Any] = rounded(
        {"name": run["name"], "attention": run["attention"], "groups": groups}
    )
    return result
