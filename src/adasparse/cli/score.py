"""``adasparse score``: BLEU and chrF of translations, and tests of differences."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from adasparse.cli.common import user_errors

if TYPE_CHECKING:
    from adasparse.translation.score import Comparison

STDIN = "-"


def score(
    hyp: Annotated[
        list[str],
        typer.Option(help="Translations, one per line; - is standard input. May be repeated."),
    ],
    ref: Annotated[list[str], typer.Option(help="References. May be repeated for several.")],
    baseline: Annotated[
        str | None,
        typer.Option(help="Translations to compare with; by default the first of several --hyp."),
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Some of bleu, chrf and chrf++, with commas between.")
    ] = "bleu,chrf",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[
        str | None,
        typer.Option(help="Tokenizer of BLEU, such as 13a, intl, zh, ja-mecab, char, none."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Resamples to compare systems.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score translations with sacreBLEU; compare systems by paired bootstrap resampling.

    A difference with p below 0.05 is unlikely to be chance. SACREBLEU_SEED sets the seed.
    """
    with user_errors():
        from adasparse.translation.score import Scorer

        names = [*([baseline] if baseline is not None else []), *hyp]
        _check_names(names, ref)
        references = {name: _read(name) for name in ref}
        systems = {name: _read(name) for name in names}
        _check_lines({**references, **systems})
        scorer = Scorer(
            list(references.values()),
            metrics=[name.strip() for name in metrics.split(",")],
            lowercase=lowercase,
            tokenize=tokenize,
        )
        result = scorer(systems[hyp[0]])
        comparison = scorer.compare(systems, samples=samples) if len(systems) > 1 else None
    if as_json:
        report = result.to_dict()
        if comparison:
            report["comparison"] = comparison.to_dict()
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    elif comparison:
        _show(comparison)
    else:
        for name, value in result.values.items():
            typer.echo(f"{_title(name)} {value:.1f} | {result.signatures[name]}")


def _check_names(systems: Sequence[str], references: Sequence[str]) -> None:
    for names in (systems, references):
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(
                f"Each file must be given once; got {', '.join(sorted(repeated))} twice."
            )
    if STDIN in systems and STDIN in references:
        raise ValueError("Standard input can be read once; got - as translation and reference.")


def _read(name: str) -> list[str]:
    from adasparse._files import TextFile

    if name == STDIN and sys.stdin is None:
        raise ValueError("Standard input is closed; name a file instead of -.")
    stream = sys.stdin.buffer if name == STDIN else None
    return list(TextFile(name, stream=stream).lines())


def _check_lines(files: dict[str, list[str]]) -> None:
    counts = {name: len(lines) for name, lines in files.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise ValueError(f"All files must have the same number of lines; got {told}.")


def _title(metric: str) -> str:
    return {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++"}[metric]


def _show(comparison: "Comparison") -> None:
    table = Table("system", box=None)
    for name in comparison.signatures:
        table.add_column(_title(name), justify="right")
        table.add_column("μ ± 95%", justify="right")
        table.add_column("p", justify="right")
    for system, results in comparison.systems.items():
        cells: list[Any] = []
        for found in results.values():
            p = "baseline" if found.p_value is None else f"{found.p_value:.3f}"
            cells += [f"{found.score:.1f}", f"{found.mean:.1f} ± {found.ci:.1f}", p]
        table.add_row(system, *cells)
    console = Console(highlight=False)
    console.print(table)
    for name, signature in comparison.signatures.items():
        console.print(f"{_title(name)} | {signature}", markup=False, soft_wrap=True)
