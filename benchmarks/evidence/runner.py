"""The runner: takes the next missing piece, does it, and writes its log."""

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from benchmarks.evidence.declared import Piece
from benchmarks.evidence.workshop import NotReadyError, OutOfTimeError, Workshop

#: Does a piece in its folder, from wherever it was left; returns what its log is to say.
Kind = Callable[[Piece, Workshop], dict[str, Any]]
#: File in the folder of a piece that failed; the piece is not taken again until it is removed.
FAILED = "failed.txt"


@dataclass(frozen=True, kw_only=True)
class State:
    """Return the state of a piece: ``done``, ``failed``, ``running``, ``begun`` or ``missing``."""

    piece: Piece
    state: str


def states(pieces: Sequence[Piece], workshop: Workshop) -> list[State]:
    """Return how far each piece is, as the files say."""
    return [State(piece=piece, state=_state(piece, workshop)) for piece in pieces]


def _state(piece: Piece, workshop: Workshop) -> str:
    if piece.is_done(workshop.results):
        return "done"
    folder = piece.folder(workshop.work)
    if not folder.is_dir():
        return "missing"
    if (folder / FAILED).is_file():
        return "failed"
    with lock(piece, workshop) as held:
        return "running" if held is None else "begun"


@contextmanager
def lock(piece: Piece, workshop: Workshop) -> Iterator[int | None]:
    """Hold a piece; yield the descriptor of the lock, or None if another runner holds it.

    The lock ends with the processes that have the descriptor, however they end.
    """
    path = workshop.work / "locks" / f"{piece.experiment}-{piece.run}-{piece.seed}-{piece.key}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        yield file.fileno() if _locked(file) else None


def _locked(file: IO[str]) -> bool:
    """Lock a file; tell whether that worked. Who only asks for a state holds it for a moment."""
    for _ in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def run_pieces(
    pieces: Sequence[Piece],
    workshop: Workshop,
    kinds: Mapping[str, Kind],
    *,
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> list[str]:
    """Do pieces until none is left or time is up; return the names of those done.

    Pieces that were begun come first, then those in the order given. A piece that another runner
    holds is passed over, and so is one that needs others first; one that fails is reported, marked
    and passed over as well.
    """
    done: list[str] = []
    early: set[str] = set()
    while time.monotonic() < workshop.deadline:
        waiting = [
            x
            for x in states(pieces, workshop)
            if x.state in ("begun", "missing") and x.piece.name not in early
        ]
        waiting.sort(key=lambda x: x.state)
        for piece in (x.piece for x in waiting):
            with lock(piece, workshop) as held:
                if held is not None and not piece.is_done(workshop.results):
                    report(f"{time.strftime('%H:%M')} {piece.name}")
                    try:
                        if _finish(piece, replace(workshop, held=(held,)), kinds, report):
                            done.append(piece.name)
                            early.clear()
                    except NotReadyError as error:
                        report(str(error))
                        early.add(piece.name)
                    break
        else:
            return done
    return done


def _finish(
    piece: Piece,
    workshop: Workshop,
    kinds: Mapping[str, Kind],
    report: Callable[[str], None],
) -> bool:
    """Do a piece; tell whether it is done."""
    folder = piece.folder(workshop.work)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = kinds[piece.kind](piece, workshop)
    except OutOfTimeError:
        report(f"{piece.name}: time is up; the next run resumes it.")
        return False
    except RuntimeError as error:
        write_text(folder / FAILED, f"{error}\n")
        report(f"{piece.name} failed: {error}\nRemove {folder / FAILED} to try again.")
        return False
    write_log(piece, workshop, found)
    return True


def write_log(piece: Piece, workshop: Workshop, found: Mapping[str, Any]) -> None:
    """Write the log of a piece: what is declared, machine and versions, what was found."""
    content = {**piece.about(), "machine": workshop.machine(), **found}
    write_text(piece.log(workshop.results), compact_json(content))


def write_text(path: Path, text: str) -> None:
    """Write a file that is either complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def compact_json(value: Any, *, width: int = 100, indent: str = "") -> str:
    """Return JSON with whatever fits on one line."""
    line = json.dumps(value, ensure_ascii=False)
    is_flat = not any(isinstance(x, list | dict) for x in _children(value))
    if len(indent) + len(line) <= width or (is_flat and isinstance(value, list)):
        return line if indent else line + "\n"
    inner = indent + " "
    if isinstance(value, Mapping):
        parts = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: "
            f"{compact_json(x, width=width, indent=inner)}"
            for key, x in value.items()
        ]
        text = "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    elif isinstance(value, list):
        parts = [inner + compact_json(x, width=width, indent=inner) for x in value]
        text = "[\n" + ",\n".join(parts) + f"\n{indent}]"
    else:
        text = line
    return text if indent else text + "\n"


def _children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
