"""Ctrl-C while the command ``adasparse`` is still importing: a word instead of a traceback."""

import sys
from pathlib import Path
from types import TracebackType


def _is_command() -> bool:
    """Tell whether this process is the command, also as ``python -m adasparse``."""
    return Path(sys.argv[0]).name == "adasparse" or sys.orig_argv[1:3] == ["-m", "adasparse"]


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("Interrupted.\n")
    else:
        sys.__excepthook__(kind, error, traceback)


if hasattr(sys, "argv") and _is_command():
    sys.excepthook = _hook
