"""The commands of ``adasparse bench``."""

import typer

from adasparse.cli.bench import attention, decode, lengths, ops, plot, table

app = typer.Typer(
    help="Time operators and attention beside their baselines.",
    epilog="Example: adasparse bench attention --quick",
    no_args_is_help=True,
)
app.command("ops", epilog="Example: adasparse bench ops --threads 2 --output ops.json")(ops.ops)
app.command(
    "attention", epilog="Example: adasparse bench attention --threads 2 --output attention.json"
)(attention.attention)
app.command("decode", epilog="Example: adasparse bench decode --threads 2 --output decode.json")(
    decode.decode
)
app.command("lengths", epilog="Example: adasparse bench lengths --threads 2 --output lengths.json")(
    lengths.lengths
)
app.command(
    "table", epilog="Example: adasparse bench table benchmarks/results/ops.json --into README.md"
)(table.table)
app.command("plot", epilog="Example: adasparse bench plot lengths.json --output attention.svg")(
    plot.plot
)
