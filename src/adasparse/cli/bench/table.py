"""``adasparse bench table``: a result as Markdown."""

from pathlib import Path
from typing import Annotated

import typer

from adasparse._files import write_atomically
from adasparse.bench.tables import markdown
from adasparse.cli.bench.options import ResultFile
from adasparse.cli.bench.output import read_result
from adasparse.cli.common import user_errors


def table(
    file: ResultFile,
    into: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Put it between the markers of this file instead."
        ),
    ] = None,
) -> None:
    """Print the results of a benchmark as a Markdown table."""
    name, text = read_result(file, lambda result: (result["benchmark"], markdown(result)))
    with user_errors():
        if into is None:
            typer.echo(text, nl=False)
            return
        page = into.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        if begin not in page or end not in page.split(begin, 1)[1]:
            raise typer.BadParameter(f"{into} must have the lines {begin.strip()} and {end}.")
        head, rest = page.split(begin, 1)
        write_atomically(into, f"{head}{begin}{text}{end}{rest.split(end, 1)[1]}")
