"""``adasparse train``: a translation model from a recipe."""

import json
from dataclasses import asdict

import typer

from adasparse.cli.common import hush_transformers, user_errors
from adasparse.cli.session import AsJson, Changes, IsDry, Recipe, Resume, run_session


def train(
    recipe: Recipe,
    changes: Changes = None,
    resume: Resume = False,
    dry_run: IsDry = False,
    as_json: AsJson = False,
) -> None:
    """Train a translation model; interrupt it any time and go on with --resume.

    The output folder loads with the Auto classes of transformers. Beside the model it has
    checkpoints/, log.jsonl (loss, scores and the alpha of every head), recipe.yaml, results.json
    and tensorboard/. For several processes: torchrun --nproc-per-node 2 -m adasparse train ...
    """
    with user_errors():
        from adasparse.training import read_recipe
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
        metrics = {"eval_bleu": "dev BLEU", "eval_loss": "dev loss"}
        found = run_session(run, settings, metrics, resume=resume)
    if found is None:
        return
    output, results = found
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
