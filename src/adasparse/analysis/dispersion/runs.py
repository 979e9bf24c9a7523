"""Dispersion of attention in runs of ``adasparse tasks train``, and its files."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adasparse.analysis.dispersion.measure import Dispersion, LengthDispersion, measure_dispersion
from adasparse.longcontext.runs import load_task_run, task_recipe
from adasparse.longcontext.task_eval import length_multiples
from adasparse.longcontext.tasks import find_task


@dataclass(frozen=True, kw_only=True)
class RunDispersion:
    """Dispersion of the attention of a run.

    Args:
        run: Folder of the run.
        seed: Seed of its training.
        train_length: Length of the longest source in its training.
        dispersion: Measured dispersion.
    """

    run: str
    seed: int
    train_length: int
    dispersion: Dispersion

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, lists and dictionaries only."""
        own = {"run": self.run, "seed": self.seed, "train_length": self.train_length}
        return own | self.dispersion.to_dict()


def plan_lengths(
    runs: Sequence[str | Path], lengths: Sequence[int] | None, *, max_factor: int
) -> dict[Path, list[int]]:
    """Return the lengths at which each run is measured, after checking all of them.

    Args:
        runs: Folders of trainings on one task.
        lengths: Lengths for all runs; 1, 2, 4 … times the training length of each if None.
        max_factor: Largest of these multiples.
    """
    recipes = {Path(run): task_recipe(run) for run in runs}
    tasks = sorted({recipe.task for recipe in recipes.values()})
    if len(tasks) > 1:
        raise ValueError(f"all runs must be of the same task; got {', '.join(tasks)}.")
    task = find_task(tasks[0])
    if lengths is not None and min(lengths) < task.shortest:
        raise ValueError(
            f"lengths must be at least {task.shortest} for {task.name}; got {min(lengths)}."
        )
    return {
        run: length_multiples(recipe, max_factor) if lengths is None else sorted(set(lengths))
        for run, recipe in recipes.items()
    }


def measure_run(
    run: str | Path,
    lengths: Sequence[int],
    *,
    examples: int = 20,
    on_length: Callable[[LengthDispersion], object] | None = None,
) -> RunDispersion:
    """Measure the attention of a run; the arguments are those of ``measure_dispersion``."""
    model, recipe = load_task_run(run)
    found = measure_dispersion(
        model, find_task(recipe.task), lengths, examples=examples, on_length=on_length
    )
    return RunDispersion(
        run=str(run), seed=recipe.seed, train_length=recipe.lengths[1], dispersion=found
    )


def name_runs(found: Sequence[RunDispersion]) -> list[str]:
    """Return the shortest unique name of each run.

    That is attention and positions, then with the seed, else the folder.
    """
    methods = [f"{x.dispersion.attention} + {x.dispersion.positions}" for x in found]
    seeded = [f"{method}, seed {x.seed}" for method, x in zip(methods, found, strict=True)]
    for names in (methods, seeded):
        if max(Counter(names).values(), default=1) == 1:
            return names
    return [each.run for each in found]
