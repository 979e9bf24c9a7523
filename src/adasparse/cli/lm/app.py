"""The commands of ``adasparse lm``."""

import typer

from adasparse.cli.lm import eval as evaluation
from adasparse.cli.lm import generate, train

app = typer.Typer(
    help="Train language models, and read texts far beyond their training length.",
    epilog="Example: adasparse lm train recipes/lm-tiny.yaml data=a.txt output=runs/lm",
    no_args_is_help=True,
)
app.command(
    "train",
    epilog="Example: adasparse lm train recipes/lm-tiny.yaml data=a.txt output=runs/lm",
)(train.train)
app.command("eval", epilog="Example: adasparse lm eval runs/lm --text b.txt --lengths 512,4096")(
    evaluation.evaluate
)
app.command("generate", epilog='Example: adasparse lm generate runs/lm --prompt "It was a"')(
    generate.generate
)
