"""``adasparse train``: a translation model from a recipe."""

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
    """Train a translation model; interrupt it any time and continue with --resume.

    The output folder loads with the Auto classes of transformers. Beside the model it has
    checkpoints/, log.jsonl (loss, scores and the alpha of every head), recipe.yaml, results.json
    and tensorboard/. For several processes: torchrun --nproc-per-node 2 -m adasparse train ...
    """
    with user_errors():
        from adasparse.training import dry_run as rehearse
        from adasparse.training import read_recipe
        from adasparse.translation.recipe import TranslationRecipe
        from adasparse.translation.train import TranslationJob

        hush_transformers()
        job = TranslationJob(read_recipe(TranslationRecipe, recipe, changes or ()))
        if dry_run:
            tell_plan(rehearse(job, resume=resume), as_json=as_json)
            return
        metrics = {"eval_bleu": "dev BLEU", "eval_loss": "dev loss"}
        finished = run_job(job, metrics, resume=resume)
    if finished is None:
        return
    output, results = finished
    scores = results["candidates"][results["model"]]
    summary = (
        f"BLEU {scores['bleu']:.1f} chrF {scores['chrf']:.1f} on development data | "
        f"model:{results['model']} attn:{job.recipe.attention} seed:{job.recipe.seed}\n"
        f"Next: adasparse translate {output} < text"
    )
    tell_results(output, results, summary, as_json=as_json)
