"""``adasparse tasks sweep``: methods, positions and seeds, trained and scored one by one."""

import json
from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.common import hush_transformers, parse_numbers, user_errors
from adasparse.cli.tasks.eval import render
from adasparse.cli.tasks.options import Lengths, MaxFactor, parse_lengths
from adasparse.cli.training import AsJson, Changes, Recipe, message_console


def sweep(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for all of the runs.")],
    changes: Changes = None,
    attention: Annotated[
        list[str] | None,
        typer.Option(show_default="that of the recipe", help="Several times for several."),
    ] = None,
    positions: Annotated[
        list[str] | None,
        typer.Option(show_default="those of the recipe", help="Several times for several."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(show_default="that of the recipe", help="Such as 1,2.")
    ] = None,
    lengths: Lengths = None,
    max_factor: MaxFactor = 16,
    examples: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of examples at each length.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Train and score every combination of attention, positions and seed.

    The same command again resumes what was interrupted and skips what is finished. Draw the
    result with 'adasparse tasks plot'.
    """
    with user_errors():
        from adasparse.longcontext.recipe import TaskRecipe
        from adasparse.longcontext.sweep import run_one, sweep_recipes
        from adasparse.longcontext.task_eval import length_multiples
        from adasparse.training import ProgressBar, TrainingStopped, read_recipe

        hush_transformers()
        base = read_recipe(TaskRecipe, recipe, [*(changes or ()), f"output={out}"])
        recipes = sweep_recipes(
            base,
            attentions=attention or [base.attention],  # type: ignore[arg-type]  # checked there
            positions=positions or [base.positions],  # type: ignore[arg-type]
            seeds=[base.seed] if seeds is None else parse_numbers(seeds),
        )
        wanted = length_multiples(base, max_factor) if lengths is None else parse_lengths(lengths)
        console = message_console()
        results = []
        for number, each in enumerate(recipes, 1):
            console.print(f"Run {number} of {len(recipes)}: {each.output}")
            metrics = {f"eval_exact_match_{x}": f"exact at {x}" for x in each.dev_lengths}
            try:
                found = run_one(
                    each,
                    wanted,
                    examples=examples,
                    report=console.print,
                    progress=ProgressBar(metrics, console),
                )
            except (TrainingStopped, KeyboardInterrupt) as stopped:
                console.print(f"{str(stopped) or 'Interrupted.'} The same command resumes it.")
                raise typer.Exit(1) from stopped
            results.append({"run": each.output, **found})
            if not as_json:
                typer.echo(f"{each.output}\n{render(found)}")
    if as_json:
        typer.echo(json.dumps(results, indent=2))
