"""``adasparse demo``: a translation model trained on a synthetic corpus, and a report."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adasparse.cli.common import ProgressBars, hush_transformers, user_errors

if TYPE_CHECKING:
    from adasparse.demo.run import DemoResult


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo"),
    pair: Annotated[str, typer.Option(help="de-en or en-de.")] = "de-en",
    attention: Annotated[str, typer.Option(help="adaptive, entmax or softmax.")] = "adaptive",
    steps: Annotated[int, typer.Option(min=1, help="Updates of the weights.")] = 1350,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the corpus and of training.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a translation model in two minutes on a synthetic corpus, and show its heads.

    Nothing is downloaded. The sentences that are translated in the end were not trained on.
    """
    with user_errors():
        from adasparse.demo.run import run_demo
        from adasparse.training import ProgressBar, TrainingStopped

        hush_transformers()
        console = Console(stderr=True, highlight=False)
        try:
            result = run_demo(
                out,
                pair=pair,
                attention=attention,  # type: ignore[arg-type]  # the recipe checks it
                steps=steps,
                seed=seed,
                report=console.print,
                progress=ProgressBar({}, console),
            )
        except TrainingStopped as stopped:
            console.print(str(stopped))
            raise typer.Exit(1) from stopped
        has_report = _write_report(out, console)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2, ensure_ascii=False))
    else:
        _show(result, out, has_report)


def _write_report(out: Path, console: Any) -> bool:
    """Analyze the heads if the packages for it are installed; return whether they are."""
    try:
        from adasparse.analysis import analyze_folders

        with ProgressBars() as bars:
            analysis = analyze_folders(
                [out / "run"], [out / "data"], max_sentences=200, progress=bars.update
            )
            analysis.write(out / "report")
    except ModuleNotFoundError as error:
        console.print(f"No report: {error}")
        return False
    return True


def _show(result: "DemoResult", out: Path, has_report: bool) -> None:
    console = Console(highlight=False)
    table = Table(title="Never seen in training", title_justify="left", box=None, show_lines=False)
    table.add_column("", width=1)
    table.add_column("source", ratio=1)
    table.add_column("translation", ratio=1)
    for source, reference, translation in result.translations:
        is_right = translation == reference
        table.add_row(
            Text("✓" if is_right else "✗", style="green" if is_right else "red"),
            Text(source),
            Text(translation if is_right else f"{translation}\n(reference: {reference})"),
        )
    console.print(table, "")
    if result.alpha:
        console.print(_alpha_table(result.alpha), "")
    console.print(
        f"BLEU {result.bleu:.1f}, {result.exact_match:.1%} of the sentences right to the letter "
        f"| data:demo-{result.pair} steps:{result.steps} "
        f"{result.tokens_per_second:,.0f} tokens/s, {result.seconds:.0f} s in all"
    )
    files = "results.json, translations.tsv, run/" + ", report/index.html" * has_report
    console.print(f"\nWritten to {out}: {files}. Next:", soft_wrap=True)
    for command in (
        f"echo 'Anna hat dreiundzwanzig rote Autos gekauft.' | adasparse translate {out}/run"
        if result.pair == "de-en"
        else f"adasparse translate {out}/run {out}/corpus/test.{result.pair[:2]}",
        f"adasparse explore {out}/run",
        f"adasparse demo --out {out} --attention softmax",
    ):
        console.print(f"  {command}", soft_wrap=True)


def _alpha_table(alpha: Any) -> Table:
    """One line per attention module, one bar per head."""
    from adasparse.training import alpha_picture

    table = Table(
        title="α of every head, from 1 (softmax) to 2 (sparsemax)", title_justify="left", box=None
    )
    heads = max(map(len, alpha.values()))
    table.add_column("attention")
    for head in range(heads):
        table.add_column(f"head {head + 1}", justify="right")
    for name, values in alpha.items():
        cells = [f"{alpha_picture([x])} {x:.2f}" for x in values]
        table.add_row(name.removeprefix("model."), *cells)
    return table
