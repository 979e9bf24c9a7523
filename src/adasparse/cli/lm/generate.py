"""``adasparse lm generate``: the continuation of a prompt by a language model."""

from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.common import hush_transformers, user_errors


def generate(
    run: Annotated[Path, typer.Argument(help="Folder of a run of 'adasparse lm train'.")],
    prompt: Annotated[str, typer.Option(help="Text to go on from.")],
    tokens: Annotated[int, typer.Option(min=1, help="How many to add.")] = 100,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the most likely token each time.")
    ] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="Of the random choices.")] = 0,
) -> None:
    """Print a prompt followed by the continuation of a language model."""
    with user_errors():
        from adasparse.longcontext.generate import continue_text

        hush_transformers()
        found = continue_text(run, prompt, max_tokens=tokens, temperature=temperature, seed=seed)
    typer.echo(found)
