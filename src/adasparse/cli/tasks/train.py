"""``adasparse tasks train``: a model that does a task, from a recipe."""

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
    """Train a model on a task; interrupt it any time and continue with --resume.

    The output folder loads with AutoModelForCausalLM after 'import adasparse.longcontext'. Beside
    the model it has checkpoints/, log.jsonl, recipe.yaml, results.json and tensorboard/. For
    several processes: torchrun --nproc-per-node 2 -m adasparse tasks train ...
    """
    with user_errors():
        from adasparse.longcontext.recipe import TaskRecipe
        from adasparse.longcontext.train import TaskJob
        from adasparse.training import dry_run as rehearse
        from adasparse.training import read_recipe

        hush_transformers()
        settings = read_recipe(TaskRecipe, recipe, changes or ())
        if dry_run:
            tell_plan(rehearse(TaskJob(settings), resume=resume), as_json=as_json)
            return
        metrics = {f"eval_exact_match_{x}": f"exact at {x}" for x in settings.dev_lengths}
        finished = run_job(TaskJob(settings), metrics, resume=resume)
    if finished is None:
        return
    output, results = finished
    scores = results["candidates"][results["model"]]
    exact = " ".join(
        f"{x}:{scores[f'exact_match_{x}']:.1%}"
        for x in settings.dev_lengths
        if f"exact_match_{x}" in scores
    )
    summary = (
        f"exact match {exact} | task:{settings.task} attn:{settings.attention} "
        f"positions:{settings.positions} model:{results['model']} seed:{settings.seed}\n"
        f"Next: adasparse tasks eval {output}"
    )
    tell_results(output, results, summary, as_json=as_json)
