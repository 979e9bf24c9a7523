"""First steps of the command ``adasparse``, before its imports, which take seconds.

It says that it is loading, and Ctrl-C meanwhile gets a word instead of a traceback. Messages go
nowhere if standard error is closed, and a working directory that was removed ends it, as the
libraries of torch would, with another message.
"""

import os
import sys
from pathlib import Path
from types import TracebackType

#: Commands that are done as soon as everything is loaded.
_BRIEF = ("doctor",)
_spoken: list[str] = []


def _is_command() -> bool:
    """Tell whether this process is the command, also as ``python -m adasparse``."""
    return Path(sys.argv[0]).name == "adasparse" or sys.orig_argv[1:3] == ["-m", "adasparse"]


def _is_quick(arguments: list[str]) -> bool:
    """Tell whether a command only prints something about itself."""
    wanted = {"--help", "--version"} & {*arguments}
    return bool(wanted) or not arguments or arguments[0] in _BRIEF


def say_loading() -> None:
    """Say once, on stderr, that libraries are loading."""
    if not _spoken:
        _spoken.append("Loading libraries …")
        sys.stderr.write(f"{_spoken[0]}\n")
        sys.stderr.flush()


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("Interrupted.\n")
    else:
        sys.__excepthook__(kind, error, traceback)


def _start(arguments: list[str]) -> None:
    sys.excepthook = _hook
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open
    try:
        os.getcwd()
    except FileNotFoundError:
        sys.exit("Error: The working directory was removed; change to another one.")
    is_first_process = os.environ.get("RANK", "0") == "0"
    # A page is waited for even where nobody reads along; other output may go to a file.
    is_awaited = sys.stderr.isatty() or arguments[:1] == ["explore"]
    if is_first_process and is_awaited and not _is_quick(arguments):
        say_loading()


if hasattr(sys, "argv") and _is_command():
    _start(sys.argv[1:])
