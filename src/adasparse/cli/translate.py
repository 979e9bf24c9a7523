"""``adasparse translate``: sentences from stdin or files, one translation per line."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from adasparse._files import TextFile, check_output_file, write_atomically
from adasparse.cli.common import hush_transformers, user_errors


def translate(
    run: Annotated[Path, typer.Argument(help="Folder that adasparse train wrote.")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text, one sentence a line; stdin if none.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; stdout by default.")
    ] = None,
    beam: Annotated[int, typer.Option(min=1, max=256, help="Hypotheses kept at each step.")] = 5,
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Translations of each sentence; above 1: number, score and text."),
    ] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write the score before each translation.")
    ] = False,
    length_penalty: Annotated[
        float, typer.Option(help="Above 0 longer translations gain, below they lose.")
    ] = 1.0,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens translated at once, times beams.")
    ] = 8192,
    skip_long: Annotated[
        bool,
        typer.Option("--skip-long", help="Leave sentences empty that are too long for the model."),
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the attention of all sentences (.safetensors)."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a sentence.")
    ] = False,
) -> None:
    """Translate text, line by line, in its order; empty lines stay empty."""
    with user_errors():
        from rich.console import Console
        from rich.progress import Progress

        from adasparse.translation.decode import Translation, too_long, translate
        from adasparse.translation.runs import load_run

        if n_best > beam:
            raise ValueError(f"--n-best must be at most --beam, which is {beam}; got {n_best}.")
        for path in (output, attention):
            if path is not None:
                check_output_file(path)
        if output is not None and attention is not None and _is_same_file(output, attention):
            raise ValueError(f"--output and --attention must be two files; both are {output}.")
        if output is None and sys.stdout is None:
            raise ValueError("Standard output is closed; name a file with --output.")
        if not files and sys.stdin is None:
            raise ValueError("Standard input is closed; name files to translate.")
        hush_transformers()
        model, tokenizer = load_run(run)
        places, given = _read(files or [])
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        longest = too_long(given, model, tokenizer)
        _tell_long({places[i]: length for i, length in longest.items()}, skip_long, console)
        sentences = ["" if i in longest else sentence for i, sentence in enumerate(given)]
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("translating", total=sum(bool(x.strip()) for x in sentences))
            found: list[list[Translation]] = translate(
                model,
                tokenizer,
                sentences,
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
                batch_tokens=batch_tokens,
                on_done=lambda count: progress.advance(task, count),
            )
        lines = []
        for i, translations in enumerate(found):
            lines += _lines(i, given[i], translations, n_best, scores, as_json)
        text = "".join(f"{line}\n" for line in lines)
        if output is None:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
            typer.echo(text, nl=False)
        else:
            write_atomically(output, text)
        if attention is not None:
            _save_attention(model, tokenizer, sentences, found, attention)


def _is_same_file(one: Path, other: Path) -> bool:
    """Tell whether two paths name one file, which one would overwrite; devices take both."""
    is_file = one.is_file() or not one.exists()
    return is_file and one.resolve() == other.resolve()


def _read(files: list[Path]) -> tuple[list[str], list[str]]:
    """Return the place of each line of all files, and the lines."""
    texts = {f" of {path}": TextFile(path, may_be_empty=True) for path in files}
    if not files:
        texts = {"": TextFile("standard input", stream=sys.stdin.buffer, may_be_empty=True)}
    places: list[str] = []
    sentences: list[str] = []
    for name, text in texts.items():
        for number, line in enumerate(text.lines(), start=1):
            places.append(f"line {number}{name}")
            sentences.append(line)
    return places, sentences


def _tell_long(lengths: dict[str, int], is_skipped: bool, console: Any) -> None:
    """Report lines that are too long and are left empty, or refuse them."""
    if not lengths:
        return
    shown = ", ".join(f"{place} ({length} tokens)" for place, length in [*lengths.items()][:5])
    shown += ", ..." if len(lengths) > 5 else ""
    if not is_skipped:
        raise ValueError(
            f"{len(lengths)} sentences are too long for this model: {shown}. "
            "Split them, or add --skip-long to leave them empty."
        )
    console.print(f"Left empty, too long for this model: {shown}.")


def _lines(
    number: int, source: str, translations: list[Any], n_best: int, scores: bool, as_json: bool
) -> list[str]:
    """Return the lines for one sentence."""
    texts = [x.text.replace("\n", " ").replace("\r", " ") for x in translations]
    pairs = list(zip(texts, translations, strict=True))
    if as_json:
        found = [{"text": text, "score": x.score} for text, x in pairs]
        line = {"number": number + 1, "source": source, "translations": found}
        return [json.dumps(line, ensure_ascii=False)]
    lines = []
    for text, x in pairs:
        fields = [str(number + 1)] * (n_best > 1)
        fields += [f"{x.score:.4f}"] * (scores or n_best > 1)
        lines.append("\t".join([*fields, text]))
    return lines


def _save_attention(
    model: Any, tokenizer: Any, sentences: list[str], found: list[list[Any]], path: Path
) -> None:
    """Save the attention of each sentence and its best translation; empty lines have none."""
    from adasparse.analysis import record, save_recording

    pairs = [(s, best[0].text) for s, best in zip(sentences, found, strict=True) if s.strip()]
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    save_recording(path, record(model, tokenizer, sources, targets))
