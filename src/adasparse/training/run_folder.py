"""The folder of a run: new, or that of the same training."""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adasparse.training.checkpoints import STAGING, checkpoint_step, checkpoints, latest_intact
from adasparse.training.files import write_text
from adasparse.training.recipe import read_recipe, write_recipe

#: Folder of the checkpoints, in that of a run.
CHECKPOINTS = "checkpoints"
#: The recipe, and what else must stay the same while a training goes on.
RECIPE, FACTS = "recipe.yaml", "run.json"


def check_folder(
    output: str | Path,
    recipe: Any,
    *,
    facts: Mapping[str, Any],
    free: Collection[str],
    resume: bool,
) -> None:
    """Refuse a folder that is in use, or whose training is another one; write nothing.

    Args:
        output: The folder.
        recipe: Settings, a dataclass.
        facts: What the recipe does not tell of the training, such as a hash of the data.
        free: Settings that may be others when training goes on.
        resume: Whether to go on with what is in there. Without it, the folder must be empty.
    """
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise ValueError(f"output must be a folder; {output} is a file.")
    used = output.is_dir() and any(not x.name.endswith(".partial") for x in output.iterdir())
    if not used:
        return
    if not resume:
        raise ValueError(
            f"output must be a new or empty folder; {output} has files in it. "
            "Add --resume to go on with the training there, or name another folder."
        )
    if not (output / RECIPE).is_file():
        raise ValueError(
            f"There is no training to go on with in {output}: it has no {RECIPE}. "
            "Name another folder."
        )
    before, now = asdict(read_recipe(type(recipe), output / RECIPE)), asdict(recipe)
    for key in free:
        before[key] = now[key]
    if (output / FACTS).is_file():
        before |= json.loads((output / FACTS).read_text(encoding="utf-8"))
        now |= facts
    others = [
        f"{key} was {before[key]!r}, now {value!r}"
        for key, value in now.items()
        if before.get(key, value) != value
    ]
    if others:
        raise ValueError(
            f"The training in {output} can go on with the same settings only; {'; '.join(others)}. "
            "Give what it was, or name another folder."
        )


def prepare_folder(
    output: str | Path,
    recipe: Any,
    *,
    facts: Mapping[str, Any],
    free: Collection[str],
    resume: bool,
    report: Callable[[str], None],
) -> Path | None:
    """Make the folder of a run ready; return the checkpoint to go on from, if any.

    Checkpoints that are damaged and newer than that one are removed.

    Args:
        output: The folder.
        recipe: Settings, a dataclass.
        facts: What the recipe does not tell of the training, such as a hash of the data.
        free: Settings that may be others when training goes on.
        resume: Whether to go on with what is in there. Without it, the folder must be empty.
        report: Gets a message for each damaged checkpoint, and where training goes on.
    """
    check_folder(output, recipe, facts=facts, free=free, resume=resume)
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    write_recipe(recipe, output / RECIPE)
    write_text(output / FACTS, json.dumps(facts, indent=2))
    folder = output / CHECKPOINTS
    folder.mkdir(exist_ok=True)
    if not resume:
        return None
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    found, damaged = latest_intact(folder)
    if damaged and found is None:
        raise ValueError(
            f"None of the checkpoints in {folder} is intact: "
            f"{', '.join(path.name for path in checkpoints(folder))}. Start in another folder."
        )
    for path in damaged:
        report(f"{path.name} is damaged: it is removed, and the one before is used.")
        shutil.rmtree(path)
    report(
        "There is no checkpoint yet: training starts from the beginning."
        if found is None
        else f"Going on after step {checkpoint_step(found)}."
    )
    return found
