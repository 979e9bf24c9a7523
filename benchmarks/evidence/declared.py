"""Declared experiments: pieces of work with their settings, read from a YAML file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

EXPERIMENTS = Path(__file__).with_name("experiments.yaml")
_KEYS = {"kind", "about", "minutes", "settings", "evaluation", "seeds", "runs"}
_RUN_KEYS = {"seeds", "minutes", "evaluation"}


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One run with one seed: the unit of work, of resuming and of the logs.

    Args:
        experiment: Name of its experiment.
        run: Name of the run within it.
        seed: Seed of everything random.
        kind: Name of the function that does it; see ``kinds``.
        settings: Everything that the trained model depends on but the seed.
        evaluation: Everything that its measures depend on beside the model.
        minutes: Expected duration on one thread.
    """

    experiment: str
    run: str
    seed: int
    kind: str
    settings: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    minutes: float

    @property
    def name(self) -> str:
        """Name by which it is chosen and shown."""
        return f"{self.experiment}/{self.run}/{self.seed}"

    @property
    def key(self) -> str:
        """Hash of what the model depends on: other settings get another folder."""
        text = json.dumps([self.kind, self.settings, self.seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def folder(self, work: Path) -> Path:
        """Return the folder of its checkpoints."""
        return work / self.experiment / f"{self.run}-{self.seed}-{self.key}"

    def log(self, results: Path) -> Path:
        """Return the file of its published log."""
        return results / self.experiment / f"{self.run}-{self.seed}.json"

    def about(self) -> dict[str, Any]:
        """Return the part of its log that is declared."""
        return {
            "experiment": self.experiment,
            "run": self.run,
            "seed": self.seed,
            "kind": self.kind,
            "settings": dict(self.settings),
            "evaluation": dict(self.evaluation),
        }

    def is_done(self, results: Path) -> bool:
        """Tell whether its log is there, of the settings that are declared."""
        path = self.log(results)
        if not path.is_file():
            return False
        found = json.loads(path.read_text(encoding="utf-8"))
        return all(found.get(key) == value for key, value in self.about().items())


def read_experiments(path: Path = EXPERIMENTS) -> dict[str, dict[str, Any]]:
    """Return the experiments by name, in the order of the file; names with a dot are anchors."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    experiments = {name: x for name, x in found.items() if not name.startswith(".")}
    for name, experiment in experiments.items():
        if unknown := set(experiment) - _KEYS:
            raise ValueError(
                f"An experiment may have {sorted(_KEYS)}; {name} also has {sorted(unknown)}."
            )
    return experiments


def read_pieces(path: Path = EXPERIMENTS) -> list[Piece]:
    """Return all pieces in the order in which they are to be done: first seeds come first."""
    return [
        piece
        for name, experiment in read_experiments(path).items()
        for piece in sorted(_pieces(name, experiment), key=lambda piece: piece.seed)
    ]


def _pieces(name: str, experiment: Mapping[str, Any]) -> list[Piece]:
    found = []
    for run, changes in experiment["runs"].items():
        own = {key: changes[key] for key in _RUN_KEYS & set(changes)}
        settings = {key: x for key, x in changes.items() if key not in _RUN_KEYS}
        for seed in own.get("seeds", experiment.get("seeds", [1])):
            found.append(
                Piece(
                    experiment=name,
                    run=run,
                    seed=seed,
                    kind=experiment["kind"],
                    settings={**experiment.get("settings", {}), **settings},
                    evaluation={**experiment.get("evaluation", {}), **own.get("evaluation", {})},
                    minutes=own.get("minutes", experiment["minutes"]),
                )
            )
    return found
