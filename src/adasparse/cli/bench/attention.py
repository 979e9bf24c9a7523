"""``adasparse bench attention``: sparse attention next to softmax's."""

from typing import Annotated

import typer

from adasparse.cli.bench import attention_cases, attention_tables, results
from adasparse.cli.bench.options import (
    AsJson,
    Output,
    Quick,
    Repeats,
    Seed,
    Threads,
    check_directory,
)
from adasparse.cli.bench.results import Result, Row, Settings

NAMES = tuple(case.name for case in attention_cases.CASES)


def check_names(names: list[str] | None) -> list[str]:
    """Return the names of cases, each of them known."""
    if unknown := [name for name in names or () if name not in NAMES]:
        raise typer.BadParameter(f"a case is one of {', '.join(NAMES)}; got {', '.join(unknown)}.")
    return names or []


def attention(
    threads: Threads = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    cases: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            metavar="NAME",
            callback=check_names,
            show_default="all",
            help=f"Run this case; may be given several times. One of {', '.join(NAMES)}.",
        ),
    ] = None,
    is_quick: Quick = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Time attention next to softmax's, and measure its memory.

    The ratio is the known function's time over ours: above 1, ours is faster. Long cases get fewer
    rounds.
    """
    check_directory(output)
    settings = Settings(
        benchmark="attention",
        threads=threads,
        repeats=repeats,
        seconds=results.COMPARISON_SECONDS,
        seed=seed,
        is_quick=is_quick,
        cases=tuple(cases or ()),
    )
    with settings.set_threads():
        result = measure(settings)
    results.deliver(result, attention_tables.show, as_json=as_json, output=output)


def measure(settings: Settings) -> Result:
    """Run the cases that are wanted, and note those that cannot be run here."""
    wanted = [case for case in attention_cases.CASES if case.name in (settings.cases or NAMES)]
    rows: list[Row] = []
    skipped: list[str] = []
    with results.progress_bar() as progress:
        task = progress.add_task("", total=len(wanted))
        for case in wanted:
            progress.update(task, description=f"{case.name}: {case.title}")
            if obstacle := case.obstacle():
                skipped.append(obstacle)
            else:
                sized = case.quick() if settings.is_quick else case
                named = {"case": case.name, "title": case.title, "shape": list(sized.shape)}
                rows += [named | row for row in sized.rows(settings)]
            progress.advance(task)
    return settings.result(skipped=skipped, results=rows)
