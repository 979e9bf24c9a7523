"""``adasparse bench``: how long the operators take next to known ones."""

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

app = typer.Typer(
    help="Time the operators next to known ones.",
    epilog="Example: adasparse bench ops --quick",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ResultFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="JSON written by a benchmark.")
]


@app.command("ops", epilog="Example: adasparse bench ops --threads 2 --output ops.json")
def ops(
    threads: Annotated[
        int | None, typer.Option(min=1, show_default="torch's choice", help="CPU threads.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, show_default="30, or 3 with --quick", help="Rounds; the best counts."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random scores.")] = 0,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="A rough look in seconds: an eighth of the rows.")
    ] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the JSON to this file, too.")
    ] = None,
) -> None:
    """Time entmax and its loss next to softmax and cross entropy.

    The ratio is the known function's time over ours: above 1, ours is faster.
    """
    import torch

    from adasparse.cli import comparisons

    if output and not os.access(output.parent, os.W_OK):
        raise typer.BadParameter(f"the directory of {output} must exist and be writable.")
    repeats = repeats or (3 if is_quick else 30)
    before = torch.get_num_threads()
    threads = threads or before
    torch.set_num_threads(threads)
    try:
        rows = _measure(list(comparisons.operators(is_quick=is_quick, seed=seed)), repeats)
    finally:
        torch.set_num_threads(before)
    options = f"--threads {threads} --repeats {repeats} --seed {seed}" + " --quick" * is_quick
    skipped = [] if comparisons.has_entmax_package() else ["entmax.entmax15: not installed"]
    result = {
        "benchmark": "ops",
        "command": f"adasparse bench ops {options}",
        "machine": _machine(threads),
        "seed": seed,
        "repeats": repeats,
        "quick": is_quick,
        "skipped": skipped,
        "results": rows,
    }
    text = json.dumps(result, indent=2) + "\n"
    if output:
        write_atomically(output, text)
    if as_json:
        typer.echo(text, nl=False)
    else:
        _show(result)


@app.command(
    "table",
    epilog="Example: adasparse bench table benchmarks/results/ops.json --into README.md",
)
def table(
    file: ResultFile,
    into: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Put it between the markers of this file instead."
        ),
    ] = None,
) -> None:
    """Print the results of a benchmark as a Markdown table."""
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        text = markdown(result)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise typer.BadParameter(
            f"{file} must be JSON written by 'adasparse bench'; got {error!r}."
        ) from error
    if into is None:
        typer.echo(text, nl=False)
        return
    page, name = into.read_text(encoding="utf-8"), result["benchmark"]
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    if begin not in page or end not in page.split(begin, 1)[1]:
        raise typer.BadParameter(f"{into} must have the lines {begin.strip()} and {end}.")
    head, rest = page.split(begin, 1)
    write_atomically(into, f"{head}{begin}{text}{end}{rest.split(end, 1)[1]}")


def write_atomically(path: Path, text: str) -> None:
    """Write under a temporary name, then rename: ``path`` is never half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def markdown(result: dict[str, Any]) -> str:
    """Render a benchmark's result as a Markdown table and the line that signs it."""
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for row in result["results"]:
        names = (
            f"`{row['operator']}`",
            f"`{row['baseline']}`",
            _size(row),
            row["direction"],
            f"{row['baseline_ms']:.2f}",
        )
        groups.setdefault(names, {})[_alpha(row)] = f"{row['ms']:.2f} ({row['ratio']:.2f}×)"
    alphas = list(dict.fromkeys(_alpha(row) for row in result["results"]))
    header = ["", "against", "shape", "", "its ms", *(f"α = {alpha}" for alpha in alphas)]
    lines = [header, ["---"] * 4 + ["---:"] * (len(alphas) + 1)]
    lines += [
        [*names, *(cells.get(alpha, "") for alpha in alphas)] for names, cells in groups.items()
    ]
    drawn = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"{drawn}\n`{result['command']}`\\\n`{signature(result)}`\n"


def signature(result: dict[str, Any]) -> str:
    """On what the numbers were measured, in one line."""
    machine = result["machine"]
    facts = {name: machine[name] for name in ("cpu", "isa", "threads", "torch")}
    signed = {**facts, "seed": result["seed"], "v": machine["adasparse"]}
    return f"{result['benchmark']} | " + " ".join(
        f"{name}:{str(value).replace(' ', '-')}" for name, value in signed.items()
    )


def _measure(compared: list[Any], repeats: int) -> list[dict[str, Any]]:
    from adasparse.cli.timing import best_times

    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(compared) * repeats)
        for case in compared:
            what = f"{case.operator} against {case.baseline}, {case.shape}, {case.direction}"
            progress.update(task, description=what)
            functions = {"known": case.known, **case.ours}
            times = best_times(functions, repeats=repeats, on_round=lambda: progress.advance(task))
            known = times.pop("known")
            rows += [
                {
                    "operator": case.operator,
                    "alpha": alpha,
                    "baseline": case.baseline,
                    "shape": list(case.shape),
                    "direction": case.direction,
                    "ms": 1000 * seconds,
                    "baseline_ms": 1000 * known,
                    "ratio": known / seconds,
                }
                for alpha, seconds in times.items()
            ]
    return rows


def _machine(threads: int) -> dict[str, Any]:
    from adasparse.cli import machine

    versions = machine.versions()
    return {
        "cpu": machine.processor()["model"],
        "isa": machine.kernels()["isa"] or "plain PyTorch",
        "threads": threads,
        "date": datetime.now(timezone.utc).date().isoformat(),
        **versions,
    }


def _size(row: dict[str, Any]) -> str:
    return "×".join(map(str, row["shape"]))


def _alpha(row: dict[str, Any]) -> str:
    return row["alpha"] if isinstance(row["alpha"], str) else f"{row['alpha']:g}"


def _show(result: dict[str, Any]) -> None:
    """Print a small table for each comparison: a column per alpha, 80 characters wide at most."""
    console = Console(highlight=False)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in result["results"]:
        title = (
            f"[bold]{row['operator']}[/] {_size(row)}, {row['direction']}, "
            f"against {row['baseline']} at {row['baseline_ms']:.2f} ms"
        )
        groups.setdefault(title, []).append(row)
    for title, rows in groups.items():
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(min_width=6)
        for _ in rows:
            table.add_column(justify="right", min_width=8)
        table.add_row("α", *map(_alpha, rows))
        table.add_row("ms", *(f"{row['ms']:.2f}" for row in rows))
        colors = ["green" if row["ratio"] >= 1 else "yellow" for row in rows]
        ratios = [f"{row['ratio']:.2f}×" for row in rows]
        table.add_row("ratio", *map(Text, ratios, colors))
        console.print(title, table, "")
    for note in result["skipped"]:
        console.print(f"Skipped: {note}.")
    console.print(signature(result), soft_wrap=True)
