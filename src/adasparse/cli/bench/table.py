"""``adasparse bench table``: a result as Markdown."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.bench import attention_tables, lengths, ops, results
from adasparse.cli.bench.options import ResultFile
from adasparse.cli.bench.results import Result

RENDERERS: dict[str, Callable[[Result], str]] = {
    "ops": ops.markdown,
    "attention": attention_tables.markdown,
    "lengths": lengths.markdown,
}


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
    name, text = results.read(file, lambda result: (result["benchmark"], markdown(result)))
    if into is None:
        typer.echo(text, nl=False)
        return
    page = into.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    if begin not in page or end not in page.split(begin, 1)[1]:
        raise typer.BadParameter(f"{into} must have the lines {begin.strip()} and {end}.")
    head, rest = page.split(begin, 1)
    results.write_atomically(into, f"{head}{begin}{text}{end}{rest.split(end, 1)[1]}")


def markdown(result: Result) -> str:
    """Render a benchmark's result as a Markdown table and the line that signs it."""
    return RENDERERS[result["benchmark"]](result)
