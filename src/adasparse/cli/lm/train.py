"""``adasparse lm train``: a language model from a recipe and a text."""

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
    """Train a language model on a text file, plain or .gz; go on with --resume.

    The end of the text is held out to score with. The output folder loads with
    AutoModelForCausalLM after 'import adasparse.longcontext', and with AutoTokenizer. Beside the
    model it has tokens/, checkpoints/, log.jsonl, recipe.yaml, results.json and tensorboard/.
    """
    with user_errors():
        from adasparse.longcontext.lm import dry_run_language, train_language
        from adasparse.longcontext.recipe import LanguageRecipe
        from adasparse.training import read_recipe

        hush_transformers()
        settings = read_recipe(LanguageRecipe, recipe, changes or ())
        if dry_run:
            tell_plan(dry_run_language(settings, resume=resume), settings, as_json=as_json)
            return
        metrics = {"eval_perplexity": "dev perplexity"}
        found = run_session(train_language, settings, metrics, resume=resume)
    if found is None:
        return
    output, results = found
    if as_json:
        typer.echo(json.dumps({"output": str(output), **results}, indent=2))
        return
    scores = results["candidates"][results["model"]]
    typer.echo(
        f"perplexity {scores['perplexity']:.2f} on held-out text | attn:{settings.attention} "
        f"positions:{settings.positions} context:{settings.context} model:{results['model']} "
        f"seed:{settings.seed}\nNext: adasparse lm eval {output} --text TEXT"
    )
