"""``adasparse tasks heads``: dispersion of attention with length, head by head."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adasparse._files import check_output_folder
from adasparse.cli.common import hush_transformers, user_errors
from adasparse.cli.tasks.options import Lengths, MaxFactor, parse_lengths
from adasparse.cli.training import AsJson, message_console

if TYPE_CHECKING:
    from adasparse.analysis import Dispersion, Spread


def heads(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs of 'adasparse tasks train', of one task.")
    ],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for dispersion.json, .svg, .png and .csv.")
    ],
    lengths: Lengths = None,
    max_factor: MaxFactor = 16,
    examples: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of examples at each length.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Measure how the attention of each head spreads out as the context grows.

    Entropy, number of weights that are not zero and weight on the token that holds the answer, over
    the queries that predict something, are printed for each head at the first length and the last,
    with its alpha, and with the beta and gamma of its length scale at the last. All lengths are in
    the files that are written to the folder.
    """
    with user_errors():
        from rich.progress import Progress

        from adasparse.analysis.dispersion.runs import (
            measure_run,
            name_runs,
            plan_lengths,
        )
        from adasparse.analysis.figures import write_dispersion

        check_output_folder(out)
        hush_transformers()
        wanted = None if lengths is None else parse_lengths(lengths)
        plan = plan_lengths(runs, wanted, max_factor=max_factor)
        with Progress(console=message_console(), transient=True) as bar:
            line = bar.add_task("measuring", total=sum(map(len, plan.values())))
            found = [
                measure_run(run, each, examples=examples, on_length=lambda _: bar.advance(line))
                for run, each in plan.items()
            ]
        paths = write_dispersion(found, out)
    if as_json:
        typer.echo(json.dumps([each.to_dict() for each in found], indent=2))
        return
    for name, each in zip(name_runs(found), found, strict=True):
        typer.echo(f"{each.dispersion.task}, {name}\n{render(each.dispersion)}")
    typer.echo("\n".join(map(str, paths)))


def render(found: "Dispersion") -> str:
    """Return the heads as a table."""
    first, last = found.lengths[0], found.lengths[-1]
    ends = (first.length, last.length)
    titles = [f"{name} {n}" for name in ("entropy", "support", "relevant") for n in ends]
    rows = [["layer", "head", "alpha", "beta", "gamma", *titles]]
    for early, late in zip(first.heads, last.heads, strict=True):
        rows.append(
            [
                str(late.layer),
                str(late.head),
                f"{late.alpha:.3f}",
                _spread(late.beta),
                _spread(late.gamma),
                *(f"{head.entropy:.2f}" for head in (early, late)),
                *(f"{head.support:.1f}" for head in (early, late)),
                *("-" if x is None else f"{x:.1%}" for x in (early.relevant, late.relevant)),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{x:>{n}}" for x, n in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(lines) + "\n"


def _spread(spread: "Spread | None") -> str:
    return "-" if spread is None else f"{spread.mean:.3f} ± {spread.std:.3f}"
