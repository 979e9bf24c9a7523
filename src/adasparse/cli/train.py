"""``adasparse train``: a translation model from a recipe."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.errors import user_errors
from adasparse.cli.quiet import hush_transformers, is_first_process


def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML file, such as recipes/tiny.yaml.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Changes of the recipe, such as attention=softmax; data and output must be "
            "given. An unknown key is answered with all that there are.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the training in the output folder.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything in seconds, write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a translation model; interrupt it any time and go on with --resume.

    The output folder loads with the Auto classes of transformers. Beside the model it has
    checkpoints/, log.jsonl (loss, scores and the alpha of every head), recipe.yaml, results.json
    and tensorboard/. For several processes: torchrun --nproc-per-node 2 -m adasparse train ...
    """
    with user_errors():
        from rich.console import Console

        from adasparse.training import ProgressBar, TrainingStopped, read_recipe
        from adasparse.translation.dry_run import dry_run as rehearse
        from adasparse.translation.recipe import TranslationRecipe
        from adasparse.translation.train import train as run

        hush_transformers()
        settings = read_recipe(TranslationRecipe, recipe, changes or ())
        if dry_run:
            plan = asdict(rehearse(settings, resume=resume))
            plan["hours_at_most"] = plan["seconds_per_step"] * settings.max_steps / 3600
            typer.echo(json.dumps(plan, indent=2) if as_json else _describe(plan))
            return
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        progress = ProgressBar({"eval_bleu": "dev BLEU", "eval_loss": "dev loss"}, console)
        try:
            output = run(settings, resume=resume, report=console.print, progress=progress)
        except (TrainingStopped, KeyboardInterrupt) as stopped:
            if is_first_process():
                reason = str(stopped) or "Interrupted."
                console.print(f"{reason} Add --resume to the same command to go on.")
            raise typer.Exit(1) from stopped
        results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    if not is_first_process():
        return
    if as_json:
        typer.echo(json.dumps({"output": str(output), **results}, indent=2))
        return
    scores = results["candidates"][results["model"]]
    typer.echo(
        f"BLEU {scores['bleu']:.1f} chrF {scores['chrf']:.1f} on development data | "
        f"model:{results['model']} attn:{settings.attention} seed:{settings.seed}\n"
        f"Next: adasparse translate {output} < text"
    )


def _describe(plan: dict[str, float]) -> str:
    return (
        f"Everything is fine: {plan['parameters']:,} parameters, {plan['pairs']:,} pairs in "
        f"{plan['batches_per_epoch']:,} batches, {plan['epochs']:.1f} epochs.\n"
        f"At most {plan['seconds_per_step']:.2f} s a step, {plan['hours_at_most']:.1f} hours."
    )
