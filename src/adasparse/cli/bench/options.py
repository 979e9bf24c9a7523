"""Options that the benchmarks share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from adasparse._files import check_output_file
from adasparse.bench.devices import DTYPES, why_missing


def check_device(device: str) -> str:
    """Return the name of a device that can be used here."""
    if reason := why_missing(device):
        raise typer.BadParameter(f"{device} cannot be measured: {reason}.")
    return device


def check_dtype(dtype: str | None) -> str | None:
    """Return the name of a dtype that can be measured."""
    if dtype is not None and dtype not in DTYPES:
        raise typer.BadParameter(f"a dtype is one of {', '.join(DTYPES)}; got {dtype}.")
    return dtype


Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, show_default="torch's choice", help="CPU threads.")
]
Repeats = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000, show_default="30, or 3 with --quick", help="Rounds; the best counts."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Device = Annotated[
    str, typer.Option(callback=check_device, help="Device to measure: cpu, cuda or cuda:1.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        callback=check_dtype,
        show_default="float32 on the CPU, else bfloat16",
        help=f"One of {', '.join(DTYPES)}.",
    ),
]
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
    if output:
        try:
            check_output_file(output)
        except (ValueError, OSError) as error:
            raise typer.BadParameter(str(error)) from error


def case_option(known: Sequence[str]) -> Any:
    """Return the option ``--case`` of a benchmark with cases of these names."""

    def check(names: list[str] | None) -> list[str]:
        if unknown := [name for name in names or () if name not in known]:
            raise typer.BadParameter(
                f"a case is one of {', '.join(known)}; got {', '.join(unknown)}."
            )
        return names or []

    return typer.Option(
        "--case",
        metavar="NAME",
        callback=check,
        show_default="all",
        help=f"Run this case; may be given several times. One of {', '.join(known)}.",
    )
