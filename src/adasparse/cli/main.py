"""The ``adasparse`` command itself: its subcommands and its version."""

from importlib.metadata import version
from typing import Annotated

import typer

from adasparse.cli import analyze, demo, doctor, explore, prepare, score, train, translate
from adasparse.cli.bench import app as bench
from adasparse.cli.lm import app as lm
from adasparse.cli.tasks import app as tasks

app = typer.Typer(
    name="adasparse",
    help="Adaptively sparse attention, from the command line.",
    epilog="Example: adasparse demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo", epilog="Example: adasparse demo")(demo.demo)
app.command("doctor", epilog="Example: adasparse doctor --json")(doctor.doctor)
app.command(
    "prepare",
    cls=prepare.FilesCommand,
    epilog="Example: adasparse prepare --train a.de a.en --dev b.de b.en --out data",
)(prepare.prepare)
app.command(
    "train",
    epilog="Example: adasparse train recipes/tiny.yaml data=data/m30k output=runs/a",
)(train.train)
app.command("translate", epilog="Example: adasparse translate runs/a < test.de > hyp.en")(
    translate.translate
)
app.command("score", epilog="Example: adasparse score --hyp hyp.en --ref test.en --json")(
    score.score
)
app.command(
    "analyze", epilog="Example: adasparse analyze runs/a runs/b --data data/m30k --out report"
)(analyze.analyze)
app.command("explore", epilog="Example: adasparse explore runs/a --port 8765")(explore.explore)
app.add_typer(tasks.app, name="tasks")
app.add_typer(lm.app, name="lm")
app.add_typer(bench.app, name="bench")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"adasparse {version('adasparse')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command."""
    app()
