"""Checkpoints: sealed with hashes, verified, rotated, averaged."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from adasparse._files import file_hash, is_system_error, sync, write_atomically, write_with

#: Hashes of the files of a checkpoint; written last.
HASHES = "hashes.json"
#: Folder of a checkpoint while it is written.
STAGING = ".partial"
_PREFIX = "checkpoint-"
_WEIGHTS = "model.safetensors"


def checkpoint_step(folder: Path) -> int:
    """Return the step of a checkpoint."""
    return int(folder.name.removeprefix(_PREFIX))


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first, intact or not."""
    found = [
        path
        for path in Path(folder).glob(f"{_PREFIX}*")
        if path.name.removeprefix(_PREFIX).isdecimal() and path.is_dir()
    ]
    return sorted(found, key=checkpoint_step)


def seal(folder: Path) -> None:
    """Write the hashes of all files of a checkpoint into it, and everything to the disk."""
    use_default_permissions(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != HASHES)
    for path in files:
        sync(path)
    hashes = {path.relative_to(folder).as_posix(): file_hash(path) for path in files}
    write_atomically(folder / HASHES, json.dumps(hashes, indent=2))
    sync(folder)


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Return the names and shapes of all weights of a model in a folder."""
    shapes = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            shapes.update({x: file.get_slice(x).get_shape() for x in file.keys()})  # noqa: SIM118
    return shapes


def use_default_permissions(folder: Path) -> None:
    """Give all files in a new folder the permissions that new files have by the umask.

    The folder itself was made with it. Weights are otherwise readable by their owner alone, a habit
    of safetensors.
    """
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def is_intact(folder: str | Path) -> bool:
    """Tell whether every file of a checkpoint is there, readable, and has its hash."""
    folder = Path(folder)
    try:
        hashes = json.loads((folder / HASHES).read_text(encoding="utf-8"))
        for name, known in hashes.items():
            if file_hash(folder / name) != known:
                return False
            _read_outline(folder / name)
        return bool(hashes)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, SafetensorError):
        return False


def _read_outline(path: Path) -> None:
    """Read JSON, or the header of weights; raise whatever their readers do if it is damaged."""
    if path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix == ".safetensors":
        with safe_open(path, framework="pt"):
            pass


def latest_intact(folder: str | Path) -> tuple[Path | None, list[Path]]:
    """Return the newest checkpoint that is intact, and the damaged ones that are newer."""
    damaged: list[Path] = []
    for path in reversed(checkpoints(folder)):
        if is_intact(path):
            return path, damaged
        damaged.append(path)
    return None, damaged


def is_disk_error(error: Exception) -> bool:
    """Tell whether an error is the disk's."""
    return isinstance(error, SafetensorError) or is_system_error(error)


def publish(staged: Path, folder: Path) -> Path:
    """Seal a checkpoint that was written in a staging folder and give it its name."""
    seal(staged)
    final = folder / staged.name
    if final.exists():
        shutil.rmtree(final)
    os.replace(staged, final)
    sync(folder)
    return final


def regular(found: Sequence[Path], *, every: int) -> list[Path]:
    """Return the checkpoints that are written whether or not training is interrupted.

    Those are the ones at multiples of ``every`` and the newest. Others exist because training was
    stopped, or because they were the best for a while.
    """
    return [path for path in found if checkpoint_step(path) % every == 0 or path == found[-1]]


def rotate(folder: str | Path, *, keep: int, every: int, best_step: int | None) -> None:
    """Remove all checkpoints but the best one and the newest ``keep`` of the regular ones."""
    found = checkpoints(folder)
    kept = regular(found, every=every)[-keep:]
    for path in found:
        if path not in kept and checkpoint_step(path) != best_step:
            shutil.rmtree(path)


def average_checkpoints(folders: Sequence[str | Path], path: str | Path) -> None:
    """Write the mean of the weights of checkpoints, computed in float64, as one file."""
    if not folders:
        raise ValueError("There must be at least one checkpoint to average; got none.")
    total: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for folder in folders:
        with safe_open(Path(folder) / _WEIGHTS, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # the file is no mapping
                weights = file.get_tensor(name)
                dtypes[name] = weights.dtype
                total[name] = total[name] + weights.double() if name in total else weights.double()
    mean = {name: (x / len(folders)).to(dtypes[name]) for name, x in total.items()}
    write_with(path, lambda temporary: save_file(mean, temporary, metadata={"format": "pt"}))
