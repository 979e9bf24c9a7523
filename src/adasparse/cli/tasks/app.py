"""The commands of ``adasparse tasks``."""

import typer

from adasparse.cli.tasks import eval as evaluation
from adasparse.cli.tasks import heads, plot, sweep, train

app = typer.Typer(
    help="Train models on tasks that need long contexts, and see how far they reach.",
    epilog="Example: adasparse tasks train recipes/tasks/sort-tiny.yaml output=runs/sort",
    no_args_is_help=True,
)
app.command(
    "train",
    epilog="Example: adasparse tasks train recipes/tasks/sort-tiny.yaml output=runs/sort",
)(train.train)
app.command("eval", epilog="Example: adasparse tasks eval runs/sort --lengths 64,128,256,512")(
    evaluation.evaluate
)
app.command(
    "sweep",
    epilog="Example: adasparse tasks sweep recipes/tasks/sort-tiny.yaml --out runs/sweep",
)(sweep.sweep)
app.command("plot", epilog="Example: adasparse tasks plot runs/sweep --out sweep.svg")(plot.plot)
app.command(
    "heads",
    epilog="Example: adasparse tasks heads runs/sort --lengths 64,128,256,512 --out heads",
)(heads.heads)
