"""``adasparse tasks train``: a model that does a task, from a recipe."""

import json

import typer

from adasparse.cli.common import hush_transformers, user_errors
from adasparse.cli.session import (
    AsJson,
    Changes,
    IsDry,
    Recipe,
    Resume,
    run_session,
    tell_plan,
)


def train(
    recipe: Recipe,
    changes: Changes = None,
    resume: Resume = False,
    dry_run: IsDry = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on a task; interrupt it any time and go on with --resume.

    The output folder loads with AutoModelForCausalLM after 'import adasparse.longcontext'. Beside
    the model it has checkpoints/, log.jsonl, recipe.yaml, results.json and tensorboard/. For
    several processes: torchrun --nproc-per-node 2 -m adasparse tasks train ...
    """
    with user_errors():
        from adasparse.longcontext.dry_run import dry_run_task
        from adasparse.longcontext.recipe import TaskRecipe
        from adasparse.longcontext.train import train_task
        from adasparse.training import read_recipe

        hush_transformers()
        settings = read_recipe(TaskRecipe, recipe, changes or ())
        if dry_run:
            tell_plan(dry_run_task(settings, resume=resume), settings, as_json=as_json)
            return
        metrics = {f"eval_exact_match_{x}": f"exact at {x}" for x in settings.dev_lengths}
        found = run_session(train_task, settings, metrics, resume=resume)
    if found is None:
        return
    output, results = found
    if as_json:
        typer.echo(json.dumps({"output": str(output), **results}, indent=2))
        return
    scores = results["candidates"][results["model"]]
    exact = " ".join(
        f"{x}:{scores[f'exact_match_{x}']:.1%}"
        for x in settings.dev_lengths
        if f"exact_match_{x}" in scores
    )
    typer.echo(
        f"exact match {exact} | task:{settings.task} attn:{settings.attention} "
        f"positions:{settings.positions} model:{results['model']} seed:{settings.seed}\n"
        f"Next: adasparse tasks eval {output}"
    )
