"""``adasparse prepare``: parallel text as a folder that training reads."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from adasparse.cli.common import user_errors

if TYPE_CHECKING:
    from adasparse.translation.data import PreparedData

#: Options that take one or two files, and what stands between the files once gathered.
FILES, SEPARATOR = ("--train", "--dev"), "\0"


class FilesCommand(TyperCommand):
    """A command whose options of files take all the values that follow."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse with the files of each option gathered into one value."""
        return super().parse_args(ctx, gather_files(args))


def gather_files(args: Sequence[str]) -> list[str]:
    """Arguments with the two files of ``--train A B`` in one, a separator between them."""
    gathered: list[str] = []
    takes_value = has_value = False
    for arg in args:
        if arg.startswith("-"):
            takes_value = arg.partition("=")[0] in FILES
            has_value = "=" in arg
        elif takes_value and has_value:
            gathered[-1] += SEPARATOR + arg
            continue
        else:
            has_value = True
        gathered.append(arg)
    return gathered


def prepare(
    train: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE TARGET",
            help="Training data: two files of aligned lines, or one file that ends in .tsv or "
            ".jsonl; gzip is recognized. May be repeated.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    dev: Annotated[
        str | None,
        typer.Option(metavar="SOURCE TARGET", help="Dev data, in the same way; kept as they are."),
    ] = None,
    dev_size: Annotated[
        int | None,
        typer.Option(help="Instead of --dev: split off this many training pairs at random."),
    ] = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Source language; by default the ending of the file.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option(help="Target language; by default the ending of the file.")
    ] = None,
    source_key: Annotated[
        str | None,
        typer.Option(help="Field of the source in JSONL; by default the language, or 'source'."),
    ] = None,
    target_key: Annotated[
        str | None,
        typer.Option(help="Field of the target in JSONL; by default the language, or 'target'."),
    ] = None,
    vocab_size: Annotated[
        int, typer.Option(help="Tokens of the joint byte-pair encoding, at most.")
    ] = 8000,
    tokenizer_pairs: Annotated[
        int, typer.Option(help="Pairs to learn the tokenizer from, at most, evenly spaced.")
    ] = 500_000,
    max_chars: Annotated[
        int, typer.Option(help="Drop pairs with more characters on a side; 0: no limit.")
    ] = 2000,
    min_tokens: Annotated[int, typer.Option(help="Drop pairs with fewer tokens on a side.")] = 1,
    max_tokens: Annotated[
        int, typer.Option(help="Drop pairs with more tokens on a side; 0: no limit.")
    ] = 256,
    max_ratio: Annotated[
        float, typer.Option(help="Drop pairs of more uneven numbers of tokens; 0: no limit.")
    ] = 4.0,
    normalize: Annotated[
        bool,
        typer.Option(help="Compose Unicode, remove control characters and extra white space."),
    ] = True,
    deduplicate: Annotated[bool, typer.Option(help="Drop repeated pairs.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the choice of --dev-size.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace prepared data.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Turn parallel text into token ids, tokenizer and manifest, and count the dropped pairs.

    Training pairs that are empty, too long, uneven, repeated or in the dev set are dropped. Files
    of different numbers of lines or with invalid UTF-8 are refused, and nothing is written.
    """
    with user_errors():
        from adasparse.translation.filters import Filters
        from adasparse.translation.prepare import prepare as run

        console = Console(stderr=True, highlight=False)
        with _progress(console) as progress:
            data = run(
                train=[files.split(SEPARATOR) for files in train],
                dev=None if dev is None else dev.split(SEPARATOR),
                dev_size=dev_size,
                out=out,
                source_lang=source_lang,
                target_lang=target_lang,
                source_key=source_key,
                target_key=target_key,
                vocab_size=vocab_size,
                tokenizer_pairs=tokenizer_pairs,
                normalize=normalize,
                deduplicate=deduplicate,
                filters=Filters(
                    max_chars=max_chars or None,
                    min_tokens=min_tokens,
                    max_tokens=max_tokens or None,
                    max_ratio=max_ratio or None,
                ),
                seed=seed,
                force=force,
                progress=progress,
            )
    if as_json:
        manifest = {"folder": str(data.folder), **data.manifest}
        typer.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    console.print(_account(data.manifest))
    typer.echo(_summary(data))


class _Rate(ProgressColumn):
    """Rate per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="dim")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} pairs"),
        _Rate(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _account(manifest: dict[str, Any]) -> Table:
    """Print a summary of the pairs that were kept and dropped."""
    train, dev = manifest["train"], manifest["dev"]
    table = Table("Training pairs", box=None, title_justify="left")
    table.add_column("", justify="right")
    table.add_row("read", f"{train['read']:,}")
    for reason, count in train["dropped"].items():
        style = "" if count else "dim"
        table.add_row(f"  dropped: {reason.replace('_', ' ')}", f"{count:,}", style=style)
    table.add_row("kept", f"{train['pairs']:,}")
    for side in ("source", "target"):
        table.add_row(f"  with the {side} of a dev pair", f"{train[f'{side}_in_dev']:,}")
    table.add_row("dev pairs", f"{dev['pairs']:,}")
    if dev["blank"]:
        table.add_row("  without text on a side, kept", f"{dev['blank']:,}", style="yellow")
    return table


def _summary(data: "PreparedData") -> str:
    train, vocab_size = data.manifest["train"], data.manifest["tokenizer"]["vocab_size"]
    lengths = " / ".join(
        f"{train[f'{s}_tokens'] / train['pairs']:.1f}" for s in ("source", "target")
    )
    return (
        f"{data.source_lang} → {data.target_lang}: {train['pairs']:,} training pairs of "
        f"{lengths} tokens, {data.manifest['dev']['pairs']:,} dev pairs, "
        f"{vocab_size:,} kinds of tokens.\n"
        f"Next: adasparse train recipes/tiny.yaml data={data.folder} output=runs/a"
    )
