"""``adasparse bench plot``: figures of time and memory against length."""

from pathlib import Path
from typing import Annotated

import typer

from adasparse._files import write_atomically
from adasparse.bench.results import Result
from adasparse.cli.bench.options import ResultFile, check_directory
from adasparse.cli.bench.output import read_result
from adasparse.cli.common import user_errors

FORMATS = (".pdf", ".png", ".svg")


def plot(
    file: ResultFile,
    output: Annotated[
        Path,
        typer.Option(
            dir_okay=False,
            help="x.svg stands for x_time.svg and x_memory.svg; .png and .pdf can be had, too.",
        ),
    ],
) -> None:
    """Draw time and memory against length, from 'adasparse bench lengths' or 'bench decode'.

    The names of the files that were written are printed.
    """
    try:
        from adasparse.bench import figures
    except ImportError as error:
        raise typer.BadParameter(
            f"figures need matplotlib: pip install 'adasparse[analysis]' ({error})."
        ) from error
    check_directory(output)
    if output.suffix not in FORMATS:
        raise typer.BadParameter(f"{output} must end in one of {', '.join(FORMATS)}.")

    def render(result: Result) -> dict[str, bytes]:
        drawn = figures.draw(result)
        return {name: figures.encode(figure, output.suffix[1:]) for name, figure in drawn.items()}

    with user_errors():
        for name, content in read_result(file, render).items():
            path = output.with_stem(f"{output.stem}_{name}")
            write_atomically(path, content)
            typer.echo(path)
