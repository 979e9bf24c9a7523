"""Trainings from the command line: what all of them do alike."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adasparse.cli.quiet import is_first_process

if TYPE_CHECKING:
    from rich.console import Console

    from adasparse.longcontext.dry_run import DryRun
    from adasparse.longcontext.recipe import LongContextRecipe

Recipe = Annotated[Path, typer.Argument(help="A YAML file, such as those in recipes/.")]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes of the recipe, such as attention=softmax; what it leaves open, such as "
        "output, must be given. An unknown key is answered with all that there are.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the training in the output folder.")
]
IsDry = Annotated[
    bool, typer.Option("--dry-run", help="Check everything in seconds, write nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def message_console() -> "Console":
    """Return a console on stderr that prints texts as they are."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def tell_plan(plan: "DryRun", recipe: "LongContextRecipe", *, as_json: bool) -> None:
    """Print what a training of a long-context model would do."""
    from dataclasses import asdict

    hours = plan.seconds_per_step * recipe.max_steps / 3600
    if as_json:
        typer.echo(json.dumps({**asdict(plan), "hours_at_most": hours}, indent=2))
        return
    typer.echo(
        f"Everything is fine: {plan.parameters:,} parameters, {plan.examples:,} examples.\n"
        f"At most {plan.seconds_per_step:.2f} s a step, {hours:.1f} hours."
    )


def run_session(
    train: Callable[..., Path], recipe: Any, metrics: dict[str, str], *, resume: bool
) -> tuple[Path, dict[str, Any]] | None:
    """Train; return the folder and its results, in the first of several processes only.

    Training that was stopped says how it goes on, and ends the command.

    Args:
        train: What trains by a recipe.
        recipe: That recipe.
        metrics: Scores to show beside the bar, and what they are called there.
        resume: Whether to go on with what is in the folder of the run.
    """
    from adasparse.training import ProgressBar, TrainingStopped

    console = message_console()
    progress = ProgressBar(metrics, console)
    try:
        output = train(recipe, resume=resume, report=console.print, progress=progress)
    except (TrainingStopped, KeyboardInterrupt) as stopped:
        if is_first_process():
            reason = str(stopped) or "Interrupted."
            console.print(f"{reason} Add --resume to the same command to go on.")
        raise typer.Exit(1) from stopped
    if not is_first_process():
        return None
    return output, json.loads((output / "results.json").read_text(encoding="utf-8"))
