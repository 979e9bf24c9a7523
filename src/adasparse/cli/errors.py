"""How commands tell users what is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from adasparse.cli.quiet import is_first_process


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that a user can mend into a message and exit code 1, without a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has enough; typer ends quietly
    except (ValueError, OSError, ModuleNotFoundError) as error:
        _say(f"Error: {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        _say("Interrupted.")
        raise typer.Exit(130) from None


def _say(message: str) -> None:
    if is_first_process():
        typer.echo(message, err=True)
