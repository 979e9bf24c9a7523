"""``adasparse tasks plot``: accuracy against length."""

from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.common import user_errors

FORMATS = (".png", ".svg")


def plot(
    folders: Annotated[list[Path], typer.Argument(help="Sweeps, or runs that were scored.")],
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="x.svg stands for x.svg, x.png and x.csv.")
    ],
) -> None:
    """Draw exact match against length, with 95% intervals; all seeds of a method count together.

    The names of the files that were written are printed.
    """
    with user_errors():
        from adasparse.analysis.figures import accuracy_by_length, save_figure
        from adasparse.longcontext.sweep import read_evaluations

        if out.suffix not in FORMATS:
            raise ValueError(f"--out must end in one of {', '.join(FORMATS)}; got {out}.")
        if not out.parent.is_dir():
            raise ValueError(f"The folder of {out} must exist; there is no {out.parent}.")
        found = [each for folder in folders for each in read_evaluations(folder)]
        for path in save_figure(accuracy_by_length(found), out.with_suffix("")):
            typer.echo(path)
