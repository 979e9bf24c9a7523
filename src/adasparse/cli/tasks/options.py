"""Options that the commands of ``adasparse tasks`` share."""

from typing import Annotated

import typer

Lengths = Annotated[
    str | None,
    typer.Option(show_default="1, 2, 4 ... times the training length", help="Such as 64,128,256."),
]
MaxFactor = Annotated[int, typer.Option(min=1, help="The last multiple of the training length.")]
