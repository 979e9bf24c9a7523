"""Commands run in this process, and messages of those that fail."""

import time

from typer.testing import CliRunner

from adasparse.cli.main import app


def invoke(*arguments, text=""):
    return CliRunner().invoke(app, [str(x) for x in arguments], input=text)


def fails(*arguments, text="", seconds=60):
    """What a command that fails says, in at most two lines and without a traceback."""
    start = time.monotonic()
    result = invoke(*arguments, text=text)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1, result.output
    assert time.monotonic() - start < seconds
    said = [line for line in result.stderr.splitlines() if line.strip()]
    lines = [line for line in said if not line.endswith("…")]  # without the stages of loading
    assert 1 <= len(lines) <= 2, lines
    return result.stderr


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
