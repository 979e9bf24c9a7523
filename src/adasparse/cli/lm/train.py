"""``adasparse lm train``: a language model from a recipe and a text."""

from adasparse.cli.common import hush_transformers, user_errors
from adasparse.cli.training import (
    AsJson,
    Changes,
    IsDry,
    Recipe,
    Resume,
    run_job,
    tell_plan,
    tell_results,
)


def train(
    recipe: Recipe,
    changes: Changes = None,
    resume: Resume = False,
    dry_run: IsDry = False,
    as_json: AsJson = False,
) -> None:
    """Train a language model on a text file, plain or .gz; continue with --resume.

    The end of the text is held out to score with. The output folder loads with
    AutoModelForCausalLM after 'import adasparse.longcontext', and with AutoTokenizer. Beside the
    model it has tokens/, checkpoints/, log.jsonl, recipe.yaml, results.json and tensorboard/. For
    several processes: torchrun --nproc-per-node 2 -m adasparse lm train ...
    """
    with user_errors():
        from adasparse.longcontext.lm import LanguageJob
        from adasparse.longcontext.recipe import LanguageRecipe
        from adasparse.training import dry_run as rehearse
        from adasparse.training import read_recipe

        hush_transformers()
        settings = read_recipe(LanguageRecipe, recipe, changes or ())
        if dry_run:
            tell_plan(rehearse(LanguageJob(settings), resume=resume), as_json=as_json)
            return
        metrics = {"eval_perplexity": "dev perplexity"}
        finished = run_job(LanguageJob(settings), metrics, resume=resume)
    if finished is None:
        return
    output, results = finished
    scores = results["candidates"][results["model"]]
    summary = (
        f"perplexity {scores['perplexity']:.2f} on held-out text | attn:{settings.attention} "
        f"positions:{settings.positions} context:{settings.context} model:{results['model']} "
        f"seed:{settings.seed}\nNext: adasparse lm eval {output} --text TEXT"
    )
    tell_results(output, results, summary, as_json=as_json)
