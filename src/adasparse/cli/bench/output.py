"""Output of the benchmarks: progress bars, result files and the terminal."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import Progress as Bar

from adasparse._files import write_atomically
from adasparse._threads import thread_limit
from adasparse.bench.results import Progress, Result, Settings, signature
from adasparse.cli.common import user_errors

Rendered = TypeVar("Rendered")


def run_benchmark(
    measure: Callable[[Settings, Progress], Result],
    settings: Settings,
    show: Callable[[Result], object],
    *,
    as_json: bool,
    output: Path | None,
) -> None:
    """Measure with a progress bar, write the JSON if requested, and print it or a table."""
    with user_errors():
        with thread_limit(settings.num_threads), _progress_bar() as progress:
            result = measure(settings, progress)
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        if output:
            write_atomically(output, text)
    if as_json:
        typer.echo(text, nl=False)
        return
    show(result)
    console = Console(highlight=False)
    for note in result["skipped"]:
        console.print(f"Skipped: {note}.")
    console.print(signature(result), soft_wrap=True)


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """Show a bar on stderr that is gone in the end."""
    with Bar(console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("")
        yield lambda what, done, total: bar.update(
            line, description=what, completed=done, total=total
        )


def read_result(file: Path, render: Callable[[Result], Rendered]) -> Rendered:
    """Return what ``render`` makes of a result file; any other file is a mistake of the caller."""
    try:
        return render(json.loads(file.read_bytes()))
    except Exception as error:  # damaged files raise whatever comes first
        raise typer.BadParameter(
            f"{file} must be JSON written by 'adasparse bench'; got {error!r}."
        ) from error
