"""Staging folders: complete when they appear, or never there."""

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from uuid import uuid4

from adasparse._files import check_output_folder, errors_named
from adasparse.translation.data import FORMAT, MANIFEST, recover

__all__ = ["check_free", "staged"]


def check_free(folder: Path, *, force: bool) -> None:
    """Refuse a place where something else would be overwritten.

    Raises:
        FileExistsError: ``folder`` is not empty and not given up by ``force``, or cannot be a
            folder. Only prepared data can be given up.
    """
    recover(folder)
    check_output_folder(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not _is_prepared(folder):
        raise FileExistsError(
            f"The output must be a new or empty folder; {folder} has files that were not written "
            "by `adasparse prepare`, and they are not overwritten."
        )
    if not force:
        raise FileExistsError(f"{folder} has prepared data already; use --force to replace them.")


def _is_prepared(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / MANIFEST).read_bytes()).get("format") == FORMAT)
    except (AttributeError, OSError, ValueError, RecursionError):
        return False


@contextmanager
def staged(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary folder beside ``folder`` that takes its place at the end of the block.

    Whatever ends the block early, Ctrl-C and SIGTERM included, leaves the file system as it was.

    Raises:
        FileExistsError: As :func:`check_free` does, at the beginning.
    """
    check_free(folder, force=force)
    folder = folder.absolute()
    missing = [parent for parent in folder.parents if not parent.exists()]
    temporary = folder.with_name(f".{folder.name}.{uuid4().hex}.partial")
    try:
        with _terminated(), errors_named(folder):
            temporary.mkdir(parents=True)
            yield temporary
            _replace(folder, temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in missing:
            if not parent.exists() or any(parent.iterdir()):
                break
            parent.rmdir()
        raise


@contextmanager
def _terminated() -> Iterator[None]:
    """Turn SIGTERM into an exception while the block runs, so that it is cleaned up after."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _replace(folder: Path, new: Path) -> None:
    old = new.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
