"""A prepared folder: pairs of token ids, memory-mapped, with their tokenizer and manifest."""

import glob
import json
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from adasparse._files import file_hash
from adasparse.training.loading import load_tokenizer

__all__ = ["FORMAT", "MANIFEST", "SIDES", "VERSION", "PairDataset", "PreparedData"]

#: Name of the format of a prepared folder in ``manifest.json``, and its version.
FORMAT, VERSION = "adasparse-translation", 1
MANIFEST = "manifest.json"
SIDES = ("source", "target")
_ARRAYS = tuple(f"{side}.{kind}.npy" for side in SIDES for kind in ("ids", "offsets"))
#: Files of every prepared folder, each with its size and hash in the manifest.
_FILES = (
    *(f"{split}.{array}" for split in ("train", "dev") for array in _ARRAYS),
    *(f"dev.{side}.txt" for side in SIDES),
    "tokenizer/tokenizer.json",
)


class PairDataset(Dataset[dict[str, list[int]]]):
    """Pairs of one split as token ids, read from disk when asked for.

    ``dataset[i]`` is ``{"input_ids": [...], "labels": [...]}``; both end in ``</s>``. A copy sent
    to another process carries the path alone and opens the files there.

    Args:
        folder: A prepared folder.
        split: ``"train"`` or ``"dev"``.
    """

    def __init__(self, folder: str | Path, split: str) -> None:
        self.folder, self.split = Path(folder), split
        self._open()

    def _open(self) -> None:
        stem = self.folder / self.split
        try:
            self._ids, self._offsets = (
                tuple(np.load(f"{stem}.{side}.{kind}.npy", mmap_mode="r") for side in SIDES)
                for kind in ("ids", "offsets")
            )
        except (ValueError, SyntaxError, TypeError, EOFError) as error:
            raise self.damage() from error

    def damage(self) -> ValueError:
        """Return the error for files that cannot be what was prepared."""
        return ValueError(
            f"The {self.split} data in {self.folder} are damaged: prepare the data again."
        )

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row = range(len(self))[index]  # negative counts from the end, IndexError beyond it
        source, target = (
            ids[offsets[row] : offsets[row + 1]].tolist()
            for ids, offsets in zip(self._ids, self._offsets, strict=True)
        )
        return {"input_ids": source, "labels": target}

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens of each source sentence (pairs), ``</s>`` included."""
        return _lengths(self._offsets[0])

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens of each target sentence (pairs), ``</s>`` included."""
        return _lengths(self._offsets[1])

    def check(self, vocab_size: int) -> None:
        """Read all arrays; raise a ValueError if they are no pairs of ids of the vocabulary."""
        is_whole = all(map(_fit, self._ids, self._offsets))
        if not is_whole or len(self._offsets[0]) != len(self._offsets[1]):
            raise self.damage()
        if max(int(ids.max()) for ids in self._ids) >= vocab_size:
            raise self.damage()

    def __getstate__(self) -> tuple[Path, str]:
        return self.folder, self.split

    def __setstate__(self, state: tuple[Path, str]) -> None:
        self.folder, self.split = state
        self._open()

    def __repr__(self) -> str:
        return f"PairDataset({str(self.folder)!r}, {self.split!r}): {len(self)} pairs"


def _fit(ids: NDArray[Any], offsets: NDArray[Any]) -> bool:
    """Tell whether offsets divide all ids into rows, none of them empty."""
    if ids.ndim != 1 or offsets.ndim != 1 or ids.dtype.kind != "u" or offsets.dtype.kind != "i":
        return False
    return bool(
        len(offsets) > 1
        and offsets[0] == 0
        and offsets[-1] == len(ids)
        and (offsets[1:] > offsets[:-1]).all()
    )


def _lengths(offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    lengths: NDArray[np.int32] = np.diff(offsets).astype(np.int32)
    return lengths


class PreparedData:
    """Prepared data: both splits, the tokenizer and the manifest.

    Open it with :meth:`open`, which checks that the folder is whole.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.train, self.dev = PairDataset(folder, "train"), PairDataset(folder, "dev")

    @classmethod
    def open(cls, folder: str | Path) -> "PreparedData":
        """Return the data in a prepared folder, after a quick check of its files' sizes.

        Raises:
            FileNotFoundError: There is no such folder, or one of its files is missing.
            ValueError: It is no prepared folder, of an unknown version, or a file has changed.
        """
        folder = Path(folder)
        manifest = _read_manifest(folder)
        for name, expected in manifest["files"].items():
            path = folder / name
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing: prepare the data again.")
            if path.stat().st_size != expected["bytes"]:
                raise ValueError(
                    f"{path} must have {expected['bytes']} bytes; it has {path.stat().st_size}. "
                    "It changed after it was prepared: prepare the data again."
                )
        return cls(folder, manifest)

    def verify(self) -> None:
        """Read every file and compare its hash with the manifest, and its content with the others.

        Raises:
            ValueError: Names the files that changed, or the split that does not fit.
        """
        changed = [
            name
            for name, expected in self.manifest["files"].items()
            if file_hash(self.folder / name) != expected["sha256"]
        ]
        if changed:
            raise ValueError(
                f"The files of {self.folder} must be as they were prepared; "
                f"changed: {', '.join(changed)}."
            )
        for split in (self.train, self.dev):
            split.check(len(self.tokenizer))
        _ = self.dev_source, self.dev_target

    @property
    def source_lang(self) -> str:
        """Name of the source language."""
        return str(self.manifest["languages"]["source"])

    @property
    def target_lang(self) -> str:
        """Name of the target language."""
        return str(self.manifest["languages"]["target"])

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer of both languages."""
        tokenizer = load_tokenizer(self.folder / "tokenizer", PreTrainedTokenizerFast)
        return cast(PreTrainedTokenizerFast, tokenizer)

    @cached_property
    def dev_source(self) -> list[str]:
        """Source sentences of the dev set, as they were given."""
        return self._read_dev("source")

    @cached_property
    def dev_target(self) -> list[str]:
        """Target sentences of the dev set, as they were given."""
        return self._read_dev("target")

    def _read_dev(self, side: str) -> list[str]:
        """Lines ended by a newline alone: other line separators of Unicode are text."""
        content = (self.folder / f"dev.{side}.txt").read_bytes()
        try:
            lines = content.decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise self.dev.damage() from error
        if len(lines) != len(self.dev):
            raise self.dev.damage()
        return lines


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    advice = "make one with `adasparse prepare`."
    recover(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}: {advice}")
    if not path.is_file():
        raise ValueError(f"{folder} is no prepared folder, it has no {MANIFEST}: {advice}")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{folder} is no prepared folder, {MANIFEST} is of another kind: {advice}")
    if manifest.get("version") != VERSION:
        raise ValueError(
            f"The format of {folder} must be version {VERSION}; "
            f"got version {manifest.get('version')!r}. Prepare the data again."
        )
    try:
        for expected in manifest["files"].values():
            _ = expected["bytes"] + 1, expected["sha256"] + ""
        _ = [manifest["files"][name] for name in _FILES]
        _ = [manifest["languages"][side] + "" for side in SIDES]
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged (it lacks entries): {advice}") from error
    return manifest


def recover(folder: Path) -> None:
    """Give prepared data their name back if they were being replaced when the process was killed.

    They are kept under a hidden name for the moment between two renames.
    """
    if folder.exists() or not folder.absolute().parent.is_dir():
        return
    old = [
        path
        for path in folder.absolute().parent.glob(f".{glob.escape(folder.name)}.*.old")
        if (path / MANIFEST).is_file()
    ]
    if old:
        max(old, key=lambda path: path.stat().st_mtime).rename(folder)
