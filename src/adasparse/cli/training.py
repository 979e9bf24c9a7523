"""Arguments, progress and messages that all training commands share."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adasparse.cli.common import is_first_process

if TYPE_CHECKING:
    from rich.console import Console

    from adasparse.training import DryRun, Results, TrainingJob

Recipe = Annotated[Path, typer.Argument(help="A YAML file, such as those in recipes/.")]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes of the recipe, such as attention=softmax. Settings without a default, such "
        "as output, must be given. An unknown key lists all keys.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the training in the output folder.")
]
IsDry = Annotated[
    bool, typer.Option("--dry-run", help="Check everything in seconds, write nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def message_console() -> "Console":
    """Return a console on stderr that prints texts as they are."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def tell_plan(plan: "DryRun", *, as_json: bool) -> None:
    """Print the size and cost of a training."""
    if as_json:
        typer.echo(json.dumps(plan.as_dict(), indent=2))
        return
    sizes = ", ".join(
        f"{x:,.1f} {name}" if isinstance(x, float) else f"{x:,} {name.replace('_', ' ')}"
        for name, x in plan.sizes.items()
    )
    typer.echo(
        f"Everything is fine: {plan.parameters:,} parameters, {sizes}.\n"
        f"At most {plan.seconds_per_step:.2f} s a step, {plan.hours_at_most:.1f} hours."
    )


def run_job(
    job: "TrainingJob", metrics: dict[str, str], *, resume: bool
) -> "tuple[Path, Results] | None":
    """Train; return the folder and its results, in the first of several processes only.

    A training that was stopped says how to continue it, and ends the command.

    Args:
        job: Recipe, data and model.
        metrics: Scores to show beside the bar, and their labels.
        resume: Whether to continue the training in the folder of the run.
    """
    from adasparse.training import ProgressBar, TrainingStopped, fit, read_results

    console = message_console()
    progress = ProgressBar(metrics, console)
    try:
        output = fit(job, resume=resume, report=console.print, progress=progress)
    except (TrainingStopped, KeyboardInterrupt) as stopped:
        if is_first_process():
            reason = str(stopped) or "Interrupted."
            console.print(f"{reason} Add --resume to the same command to continue.")
        raise typer.Exit(1) from stopped
    return (output, read_results(output)) if is_first_process() else None


def tell_results(output: Path, results: "Results", summary: str, *, as_json: bool) -> None:
    """Print the results of a training: all of them as JSON, or a summary."""
    typer.echo(json.dumps({"output": str(output), **results}, indent=2) if as_json else summary)
