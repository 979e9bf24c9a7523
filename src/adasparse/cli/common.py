"""Helpers of the commands: errors for users, silent libraries, progress, lists of numbers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from adasparse._files import in_words, is_system_error


def hush_transformers() -> None:
    """Keep warnings and progress bars of transformers off the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def is_first_process() -> bool:
    """Tell whether this process speaks for all that torchrun or accelerate started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that a user can mend into a message and exit code 1, without a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has enough; typer ends quietly
    except (ValueError, OSError, ModuleNotFoundError) as error:
        _say(f"Error: {in_words(error)}")
        raise typer.Exit(1) from error
    except Exception as error:
        if _is_about_memory(error):
            _say(f"Error: There is not enough memory for this. {error}".rstrip())
        elif is_system_error(error):
            _say(f"Error: {in_words(error)}")
        else:
            raise
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        _say("Interrupted.")
        raise typer.Exit(130) from None


def _is_about_memory(error: Exception) -> bool:
    """Tell whether memory ran out; PyTorch says so in its own words."""
    signs = ("allocate memory", "out of memory", "not enough memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
    )


def _say(message: str) -> None:
    if is_first_process():
        typer.echo(message, err=True)


def parse_numbers(text: str) -> list[int]:
    """Return the positive integers of a list such as ``64,128``, in rising order.

    Example:
        >>> parse_numbers("128, 64")
        [64, 128]
    """
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise ValueError(f"A list of numbers must be positive integers with commas; got {text!r}.")
    return found


class ProgressBars:
    """Progress bars on stderr, one for each activity; nothing where there is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(console=console, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "ProgressBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Show how much of an activity is done."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done)
