"""``adasparse lm generate``: the continuation of a prompt by a language model."""

from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.common import hush_transformers, user_errors

#: Largest number of tokens, of the prompt or new ones, without --force: more take hours.
MOST_TOKENS = 100_000


def generate(
    run: Annotated[Path, typer.Argument(help="Folder of a run of 'adasparse lm train'.")],
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    tokens: Annotated[int, typer.Option(min=1, help="Number of tokens to add.")] = 100,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the most likely token each time.")
    ] = 0.8,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the sampling.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help=f"Read or add more than {MOST_TOKENS:,} tokens.")
    ] = False,
) -> None:
    """Print a prompt followed by the continuation of a language model."""
    with user_errors():
        if tokens > MOST_TOKENS and not force:
            raise ValueError(
                f"--tokens must be at most {MOST_TOKENS:,}; got {tokens:,}. The time grows with "
                "the square of the number. Add --force to do it all the same."
            )
        from adasparse.longcontext.generate import continue_text

        hush_transformers()
        found = continue_text(
            run,
            prompt,
            max_tokens=tokens,
            temperature=temperature,
            seed=seed,
            limit=None if force else MOST_TOKENS,
        )
    typer.echo(found)
