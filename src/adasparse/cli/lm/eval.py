"""``adasparse lm eval``: perplexity and needles beyond the training length."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from adasparse.cli.common import hush_transformers, parse_numbers, user_errors
from adasparse.cli.training import AsJson, message_console


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run of 'adasparse lm train'.")],
    text: Annotated[Path, typer.Option(help="Held-out text, plain or .gz.")],
    lengths: Annotated[
        str | None,
        typer.Option(
            show_default="1, 2, 4 and 8 times the training length", help="Such as 512,1024."
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=2, help="Read so many at each length, at least one window.")
    ] = 50_000,
    needles: Annotated[
        int,
        typer.Option(min=0, max=10_000, help="Keys to find at each length and depth; 0 for none."),
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Read a text in windows of growing length, and look for needles hidden in it.

    Perplexity is reported by position: up to the training length, twice that, and so on. A needle
    is a sentence with a random number; the model is asked for the number at the end. The result is
    also written to RUN/eval.json.
    """
    with user_errors():
        from rich.progress import Progress

        from adasparse.longcontext.language_eval import evaluate_reading

        hush_transformers()
        wanted = None if lengths is None else parse_numbers(lengths)
        with Progress(console=message_console(), transient=True) as bar:
            line = bar.add_task("reading", total=None)
            result = evaluate_reading(
                run,
                text,
                wanted,
                max_tokens=tokens,
                needles=needles,
                on_score=lambda entry: bar.update(
                    line, advance=1, description=f"reading {entry['length']} tokens"
                ),
            )
    typer.echo(json.dumps(result, indent=2) if as_json else _render(result))


def _render(result: dict[str, Any]) -> str:
    """Return perplexity by position and needles by depth as two tables."""
    rows = ["perplexity"]
    for entry in result["perplexity"]["lengths"]:
        parts = "  ".join(
            f"{part['first']}-{part['end'] - 1}: {part['perplexity']:.2f}"
            for part in entry["buckets"]
        )
        rows.append(f"{entry['length']:>8} {entry['perplexity']:>9.2f}   {parts}")
    stopped = {result["perplexity"]["stopped"]}
    if result["needles"] is not None:
        rows.append("needles found, by depth")
        scores = result["needles"]["scores"]
        for length in dict.fromkeys(score["length"] for score in scores):
            parts = "  ".join(
                f"{score['depth']:.2f}: {score['exact_match']:.0%}"
                for score in scores
                if score["length"] == length
            )
            rows.append(f"{length:>8}   {parts}")
        stopped.add(result["needles"]["stopped"])
    return "\n".join(rows + [f"Stopped at {reason}." for reason in stopped if reason])
