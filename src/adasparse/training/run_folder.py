"""Run folder: empty or of the same training, locked while it is in use."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError

from adasparse._files import check_output_folder, write_atomically
from adasparse.training.checkpoints import (
    STAGING,
    checkpoint_step,
    latest_intact,
    weight_shapes,
)
from adasparse.training.loading import read_json, refuse_code
from adasparse.training.recipe import TrainingRecipe
from adasparse.training.recipe_file import read_recipe, write_recipe
from adasparse.training.results import RESULTS, read_results

try:
    import fcntl
except ModuleNotFoundError:  # Windows: trainings are not kept from sharing a folder
    fcntl = None  # type: ignore[assignment]

#: Folder of the checkpoints and of TensorBoard's files, in that of a run.
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"
#: Files of a run: its recipe, its identity, its log.
RECIPE, IDENTITY, LOG = "recipe.yaml", "run.json", "log.jsonl"
#: Folder of the files of the model while they are written.
MODEL_STAGING = ".model.partial"

#: Facts beside the recipe that stay the same while a training is resumed.
Identity = Mapping[str, str | int]
Report = Callable[[str], None]

_locked: set[int] = set()


def _forget_locks() -> None:
    """Let go of the locks in a forked process, such as one that prepares batches."""
    while _locked:
        os.close(_locked.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def check_folder(
    recipe: TrainingRecipe, identity: Identity, *, resume: bool
) -> tuple[Path | None, list[Path]]:
    """Refuse a folder that is in use, or that belongs to another training; write nothing.

    Args:
        recipe: Settings; ``output`` is the folder.
        identity: Facts about the training beside its recipe, such as a hash of the data.
        resume: Whether to continue the training in the folder. Without it, it must be empty.

    Returns:
        The newest intact checkpoint, None if there is none, and the damaged ones that are newer.
    """
    output = Path(recipe.output)
    check_output_folder(output)
    if not output.is_dir():
        return None, []
    is_new = all(x.name.endswith(".partial") for x in output.iterdir())
    if not is_new and not resume:
        raise ValueError(
            f"output must be a new or empty folder; {output} has files in it. "
            "Add --resume to continue the training there, or name another folder."
        )
    if not is_new and not (output / RECIPE).is_file():
        raise ValueError(
            f"There is no training to resume in {output}: it has no {RECIPE}. Name another folder."
        )
    _check_kinds(output)
    if is_new:
        return None, []
    refuse_code(output)
    _check_same(recipe, identity)
    found, damaged = latest_intact(output / CHECKPOINTS)
    if (output / RESULTS).exists():
        results = read_results(output, scores=recipe.scores)
        if found is not None and results["step"] == checkpoint_step(found):
            _check_model(output, found)
    if damaged and found is None:
        raise ValueError(
            f"None of the checkpoints in {output / CHECKPOINTS} is intact: "
            f"{', '.join(path.name for path in reversed(damaged))}. Start in another folder."
        )
    if found is not None and checkpoint_step(found) > recipe.max_steps:
        raise ValueError(
            f"max_steps must be at least {checkpoint_step(found)}, where this training is already; "
            f"got {recipe.max_steps}."
        )
    return found, damaged


def _check_kinds(output: Path) -> None:
    """Refuse folders in the places of files, and files in those of folders."""
    folders = (CHECKPOINTS, TENSORBOARD, MODEL_STAGING)
    for path in sorted(output.iterdir()):
        wants_folder = path.name in folders
        if wants_folder != path.is_dir() and (wants_folder or path.suffix):
            wanted, given = ("folder", "file") if wants_folder else ("file", "folder")
            raise ValueError(f"{path} must be a {wanted} of the run; it is a {given}. Remove it.")


def _check_same(recipe: TrainingRecipe, identity: Identity) -> None:
    """Refuse settings and data that are not those of the training in the folder."""
    output = Path(recipe.output)
    before, now = asdict(read_recipe(type(recipe), output / RECIPE)), asdict(recipe)
    for key in recipe.resumable:
        before[key] = now[key]
    if (output / IDENTITY).is_file():
        before |= read_json(output / IDENTITY)
        now |= identity
    others = [
        f"{key} was {before[key]!r}, now {value!r}"
        for key, value in now.items()
        if before.get(key, value) != value
    ]
    if others:
        raise ValueError(
            f"The training in {output} can be resumed with the same settings only; "
            f"{'; '.join(others)}. Give what it was, or name another folder."
        )


def _check_model(output: Path, checkpoint: Path) -> None:
    """Refuse a finished run with a model of other sizes than its last checkpoint."""
    try:
        is_same = _sizes(output) == _sizes(checkpoint)
    except (OSError, ValueError, SafetensorError):
        is_same = False
    if not is_same:
        raise ValueError(
            f"The model in {output} is damaged: it is not of the sizes of {checkpoint.name}. "
            f"Remove {RESULTS} and add --resume to write it again."
        )


def _sizes(folder: Path) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return the shapes of all weights of a model, and the whole numbers of its configuration."""
    config = read_json(folder / "config.json")
    return weight_shapes(folder), {k: x for k, x in config.items() if type(x) is int}


def prepare_folder(
    recipe: TrainingRecipe, identity: Identity, *, resume: bool, report: Report
) -> Path | None:
    """Write recipe and identity to the folder of a run; return the checkpoint to resume from.

    Damaged checkpoints that are newer than that one are removed.

    Args:
        recipe: Settings; ``output`` is the folder.
        identity: Facts about the training beside its recipe, such as a hash of the data.
        resume: Whether to continue the training in the folder. Without it, it must be empty.
        report: Receives a message for each damaged checkpoint, and the step to continue from.
    """
    found, damaged = check_folder(recipe, identity, resume=resume)
    output = Path(recipe.output)
    folder = output / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    write_recipe(recipe, output / RECIPE)
    write_atomically(output / IDENTITY, json.dumps(identity, indent=2))
    if not resume:
        return None
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    for path in damaged:
        report(f"{path.name} is damaged: it is removed, and the one before is used.")
        shutil.rmtree(path)
    report(
        "There is no checkpoint yet: training starts from the beginning."
        if found is None
        else f"Resuming after step {checkpoint_step(found)}."
    )
    return found


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold the lock of a run folder; the end of the process, however it comes, releases it.

    The folder is created, and removed again if it is still empty in the end.
    """
    check_output_folder(output)
    missing = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(output, os.O_RDONLY)
    _locked.add(descriptor)
    try:
        _lock(descriptor, output)
        yield
    finally:
        if descriptor in _locked:
            _locked.discard(descriptor)
            os.close(descriptor)
        for path in missing:
            if any(path.iterdir()):
                break
            path.rmdir()


def _lock(descriptor: int, output: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"Another training is running in {output}. Wait for it, or name another folder."
        ) from None
    except OSError:
        return  # a file system without locks


@contextmanager
def undone_on_error(output: Path) -> Iterator[None]:
    """Put a run folder back as it was if the block fails: recipe, identity and all that is new."""
    known = set(output.iterdir())
    kept = {
        path: path.read_bytes() for path in (output / RECIPE, output / IDENTITY) if path in known
    }
    try:
        yield
    except BaseException:
        for path in set(output.iterdir()) - known:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path, content in kept.items():
            if path.read_bytes() != content:
                write_atomically(path, content)
        raise
