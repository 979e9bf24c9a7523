"""Options that the commands of ``adasparse tasks`` share."""

from typing import Annotated

import typer

from adasparse.cli.common import parse_numbers

Lengths = Annotated[
    str | None,
    typer.Option(show_default="1, 2, 4 ... times the training length", help="Such as 64,128,256."),
]
MaxFactor = Annotated[
    int, typer.Option(min=1, max=2**16, help="The last multiple of the training length.")
]

#: Largest length that is not asked for twice: beyond it one example takes hours.
MOST_LENGTH = 2**20


def parse_lengths(text: str, *, force: bool | None = None) -> list[int]:
    """Return the lengths of a list such as ``64,128``; refuse some that would take hours.

    Args:
        text: The list.
        force: Whether to take lengths of any size; None where there is no such option.
    """
    lengths = parse_numbers(text)
    longest = max(lengths)
    if longest > MOST_LENGTH and not force:
        times = longest**2 // MOST_LENGTH**2  # of whole numbers, which cannot overflow
        advice = "" if force is None else " Add --force to do it all the same."
        raise ValueError(
            f"--lengths must be at most {MOST_LENGTH:,}; got {longest:,}, whose attention takes "
            f"about {times:,} times as long.{advice}"
        )
    return lengths
