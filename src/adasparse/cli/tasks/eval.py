"""``adasparse tasks eval``: accuracy of a model on its task beyond the training length."""

import json
from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.common import hush_transformers, user_errors
from adasparse.cli.tasks.options import MOST_LENGTH, Lengths, MaxFactor, parse_lengths
from adasparse.cli.training import AsJson, message_console


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run of 'adasparse tasks train'.")],
    lengths: Lengths = None,
    max_factor: MaxFactor = 64,
    examples: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of examples at each length.")
    ] = 100,
    force: Annotated[
        bool, typer.Option("--force", help=f"Score lengths above {MOST_LENGTH:,} given by name.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a model at growing lengths, as far as memory goes.

    A table is printed and RUN/eval.json written: exact match with its 95% interval (Wilson), and
    the share of right tokens. Examples are the same for all models, and none of them are those of
    training.
    """
    with user_errors():
        from rich.progress import Progress

        from adasparse.longcontext.runs import task_recipe
        from adasparse.longcontext.task_eval import evaluate_run, length_multiples

        hush_transformers()
        if lengths is None:
            wanted = length_multiples(task_recipe(run), max_factor)
        else:
            wanted = parse_lengths(lengths, force=force)
        console = message_console()
        with Progress(console=console, transient=True) as bar:
            line = bar.add_task("scoring", total=len(set(wanted)))
            result = evaluate_run(
                run, wanted, examples=examples, on_score=lambda score: bar.advance(line)
            )
    typer.echo(json.dumps(result, indent=2) if as_json else render(result), nl=as_json)


def render(result: dict[str, object]) -> str:
    """Return the scores as a table, and why there are no more."""
    rows = [f"{'length':>8} {'exact match':>12} {'95% interval':>17} {'tokens':>8} {'seconds':>8}"]
    scores = result["scores"]
    assert isinstance(scores, list)
    for score in scores:
        interval = f"{score['exact_low']:.1%} to {score['exact_high']:.1%}"
        rows.append(
            f"{score['length']:>8} {score['exact_match']:>12.1%} {interval:>17} "
            f"{score['token_accuracy']:>8.1%} {score['seconds']:>8.1f}"
        )
    if result["stopped"]:
        rows.append(f"Stopped at {result['stopped']}.")
    return "\n".join(rows) + "\n"
