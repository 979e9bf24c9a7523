"""``adasparse analyze``: what the heads of trained models do, as tables, figures and a report."""

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adasparse.cli.errors import user_errors
from adasparse.cli.quiet import hush_transformers

if TYPE_CHECKING:
    from adasparse.analysis.analyze import Analysis


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
    with user_errors():
        analysis, paths = write_analysis(
            runs,
            data=data,
            out=out,
            sentences=sentences,
            source_lang=source_lang,
            target_lang=target_lang,
            title=title,
            seed=seed,
        )
    result = analysis.to_dict()
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
    else:
        _show(result, paths)


def write_analysis(
    runs: list[Path],
    *,
    data: list[Path],
    out: Path,
    sentences: int,
    source_lang: str | None = None,
    target_lang: str | None = None,
    title: str = "What heads do",
    seed: int = 0,
) -> tuple["Analysis", list[Path]]:
    """Analyze runs with progress bars and write the report; return it and the paths."""
    from adasparse.analysis.analyze import analyze
    from adasparse.analysis.runs import load_run, unique_names

    hush_transformers()
    source, target, languages = _read(data, sentences)
    languages = _languages(languages, source_lang, target_lang, source, target)
    names = unique_names(runs)
    with _Bars() as bars:
        loaded = [load_run(path, name=name) for path, name in zip(runs, names, strict=True)]
        analysis = analyze(
            loaded,
            source,
            target,
            title=title,
            languages=languages,
            seed=seed,
            progress=bars.update,
        )
        return analysis, analysis.write(out)


class _Bars:
    """Progress bars on stderr, one for each thing that is done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._progress = Progress(console=console, disable=not console.is_terminal)
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done)


def _read(data: list[Path], most: int) -> tuple[list[str], list[str] | None, dict[str, str | None]]:
    """Return source, target if there is one, and languages as far as they are known."""
    if len(data) > 2 or (len(data) == 2 and any(path.is_dir() for path in data)):
        raise ValueError(
            "--data must be a prepared folder, a text file, or two text files; got "
            + ", ".join(map(str, data))
        )
    if data[0].is_dir():
        from adasparse.translation.data import PreparedData

        prepared = PreparedData.open(data[0])
        languages: dict[str, str | None] = {
            "source": prepared.source_lang,
            "target": prepared.target_lang,
        }
        source, target = prepared.dev_source, prepared.dev_target
    else:
        languages = {}
        lines = [_lines(path) for path in data]
        source, target = lines[0], lines[-1] if len(lines) == 2 else []
        if target and len(target) != len(source):
            raise ValueError(
                f"Two text files must have as many lines; got {len(source)} in {data[0]} and "
                f"{len(target)} in {data[1]}."
            )
    kept = [
        i for i, text in enumerate(source) if text.strip() and (not target or target[i].strip())
    ][:most]
    if not kept:
        raise ValueError(f"There must be at least one sentence that is not empty in {data[0]}.")
    return [source[i] for i in kept], [target[i] for i in kept] if target else None, languages


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"--data must name files or a prepared folder; none at {path}.")
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Text must be UTF-8; {path} is not: {error}.") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _languages(
    known: dict[str, str | None],
    source_lang: str | None,
    target_lang: str | None,
    source: list[str],
    target: list[str] | None,
) -> dict[str, str | None]:
    """What is given, else what the data says if there are interrogatives for it, else a guess."""
    from adasparse.analysis.marks import INTERROGATIVES, guess_language

    found: dict[str, str | None] = {}
    for side, given, texts in (
        ("source", source_lang, source),
        ("target", target_lang, target or []),
    ):
        told = known.get(side)
        found[side] = given or (told if told in INTERROGATIVES else guess_language(texts))
    return found


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
