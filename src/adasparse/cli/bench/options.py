"""Options that the benchmarks share."""

import os
from pathlib import Path
from typing import Annotated

import typer

Threads = Annotated[
    int | None, typer.Option(min=1, show_default="torch's choice", help="CPU threads.")
]
Repeats = Annotated[
    int | None,
    typer.Option(min=1, show_default="30, or 3 with --quick", help="Rounds; the best counts."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="A rough look in seconds, at an eighth of the size.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Output = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Write the JSON to this file, too.")
]
ResultFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="JSON written by a benchmark.")
]


def check_directory(output: Path | None) -> None:
    """Raise if ``output`` could not be written, before time is spent on measuring."""
    if output and not os.access(output.parent, os.W_OK):
        raise typer.BadParameter(f"the directory of {output} must exist and be writable.")
