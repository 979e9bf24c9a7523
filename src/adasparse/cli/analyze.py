"""``adasparse analyze``: the heads of trained models, as tables, figures and a report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from adasparse._files import check_output_folder
from adasparse.cli.common import ProgressBars, hush_transformers, user_errors


def analyze(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of trained models, to be compared.", metavar="RUN")
    ],
    data: Annotated[
        list[Path],
        typer.Option(
            help="A prepared folder, whose dev set is used; or a text file, and again --data with "
            "its translation. May be gzipped."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    sentences: Annotated[int, typer.Option(min=1, help="Sentences to use at most.")] = 1000,
    source_lang: Annotated[
        str | None, typer.Option(help="Language of the source, for interrogative words; guessed.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option(help="Language of the target, for the same; guessed.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "What heads do",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all measures as JSON.")] = False,
) -> None:
    """Measure and draw the heads of trained models over a set of sentences."""
    with user_errors(), ProgressBars() as bars:
        from adasparse.analysis import analyze_folders

        check_output_folder(out)
        hush_transformers()
        analysis = analyze_folders(
            runs,
            data,
            max_sentences=sentences,
            source_lang=source_lang,
            target_lang=target_lang,
            title=title,
            seed=seed,
            progress=bars.update,
        )
        paths = analysis.write(out)
    result = analysis.to_dict()
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
    else:
        _show(result, paths)


def _show(result: dict[str, Any], paths: list[Path]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for run in result["runs"]:
        console.print(f"[bold]{run['name']}[/]  {run['attention']}, {run['kind']}", soft_wrap=True)
        for sentence in run["summary"]:
            console.print(f"  {sentence}", markup=False, soft_wrap=True)
    for name, why in result["skipped"].items():
        console.print(f"Not drawn: {name}. {why}", markup=False, soft_wrap=True)
    console.print(
        f"{len(result['figures'])} figures over {result['sentences']} sentences: {paths[0].parent}",
        markup=False,
        soft_wrap=True,
    )
