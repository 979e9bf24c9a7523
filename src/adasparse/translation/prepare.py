"""Preparation of parallel text: read, filter, learn the tokenizer, encode.

Sentences stream from file to file, a batch at a time. Memory grows with the corpus by a
hash of 8 bytes per sentence, and twice as much again while duplicates are looked for.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from rich.progress import Progress

from adasparse._files import file_hash
from adasparse.translation.corpus import ParallelText
from adasparse.translation.data import FORMAT, MANIFEST, SIDES, VERSION, PreparedData
from adasparse.translation.encode import encode_pairs
from adasparse.translation.filters import Filters
from adasparse.translation.selection import Candidates, Pair, write_candidates
from adasparse.translation.staging import check_free, staged
from adasparse.translation.tokenizer import check_vocab_size, clean_text, train_tokenizer

__all__ = ["prepare"]

Paths: TypeAlias = Sequence[str | Path]


def prepare(
    *,
    train: Sequence[Paths],
    out: str | Path,
    dev: Paths | None = None,
    dev_size: int | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_key: str | None = None,
    target_key: str | None = None,
    vocab_size: int = 8000,
    tokenizer_pairs: int = 500_000,
    normalize: bool = True,
    deduplicate: bool = True,
    filters: Filters | None = None,
    seed: int = 0,
    force: bool = False,
    progress: Progress | None = None,
) -> PreparedData:
    """Write a folder of token ids, tokenizer and manifest, and open it.

    The same input and settings give the same bytes. The folder appears when it is complete.

    Args:
        train: Where training pairs come from: each a source and a target file, or one file that
            ends in ``.tsv`` or ``.jsonl``. Any may be compressed by gzip.
        out: Folder to write.
        dev: Where dev pairs come from. All of them are kept.
        dev_size: Instead of ``dev``, split off this many training pairs at random.
        source_lang: Name of the source language; by default the ending of the files.
        target_lang: The same of the target language.
        source_key: Field with the source in JSONL; by default ``source_lang``, else ``source``.
        target_key: The same of the target.
        vocab_size: Largest number of tokens, of both languages together.
        tokenizer_pairs: The tokenizer learns from at most this many pairs, evenly spaced.
        normalize: Compose Unicode, remove control characters and superfluous white space. The
            tokenizer will do so, too; the dev text stays as it is.
        deduplicate: Drop repeated pairs.
        filters: Limits of training pairs.
        seed: Seed of the random choice by ``dev_size``.
        force: Replace prepared data in ``out``.
        progress: Shows how far it is.

    Raises:
        FileNotFoundError: A file is missing.
        FileExistsError: ``out`` has files.
        ValueError: Something is wrong with a file, in the line named, or with a setting.
    """
    _check_files(train, dev)
    settings = _Settings(
        vocab_size=vocab_size,
        tokenizer_pairs=tokenizer_pairs,
        normalize=normalize,
        deduplicate=deduplicate,
        filters=filters or Filters(),
        dev_size=dev_size,
        seed=seed,
    )
    if (dev is None) == (dev_size is None):
        raise ValueError(
            "Dev data are needed, to know when training is done: give either dev files, or "
            "dev_size to split some off."
        )
    out = Path(out)
    check_free(out, force=force)
    keys = {"source_key": source_key or source_lang, "target_key": target_key or target_lang}
    train_texts = [ParallelText(paths, **keys) for paths in train]
    dev_texts = [] if dev is None else [ParallelText(dev, **keys)]
    languages = _agree_on_languages([*train_texts, *dev_texts], source_lang, target_lang)
    with staged(out, force=force) as folder:
        counts = _write_data(
            folder, train_texts, dev_texts, settings, progress or Progress(disable=True)
        )
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "adasparse": version("adasparse"),
            "languages": dict(zip(SIDES, languages, strict=True)),
            **counts,
            "settings": settings.to_dict(),
            "inputs": {
                "train": [text.describe() for text in train_texts],
                "dev": [text.describe() for text in dev_texts],
            },
            "files": _describe_files(folder),
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8", newline="\n")
    return PreparedData.open(out)


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """Return the settings beside the input that determine the output."""

    vocab_size: int
    tokenizer_pairs: int
    normalize: bool
    deduplicate: bool
    filters: Filters
    dev_size: int | None
    seed: int

    def __post_init__(self) -> None:
        check_vocab_size(self.vocab_size)
        for name, value in (("dev_size", self.dev_size), ("tokenizer_pairs", self.tokenizer_pairs)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0; got {self.seed}.")

    def clean(self, text: str) -> str:
        """The text as the tokenizer will see it."""
        return clean_text(text) if self.normalize else text

    def to_dict(self) -> dict[str, Any]:
        """All of them on one level."""
        values = asdict(self)
        return {**values.pop("filters"), **values}


def _check_files(train: Sequence[Paths], dev: Paths | None) -> None:
    if not train:
        raise ValueError(
            "Training data are needed: a source and a target file, or a file of pairs."
        )
    for paths in (*train, *([] if dev is None else [dev])):
        if isinstance(paths, (str, Path)):
            raise TypeError(f"Files must be given as a sequence of one or two; got {paths!r}.")


def _write_data(
    folder: Path,
    train_texts: Sequence[ParallelText],
    dev_texts: Sequence[ParallelText],
    settings: _Settings,
    progress: Progress,
) -> dict[str, Any]:
    """Write everything but the manifest; return its entries for both splits and the tokenizer."""
    work = folder / "work.txt"
    dev_pairs = [pair for text in dev_texts for pair in text.pairs()]
    read = _track(chain.from_iterable(text.pairs() for text in train_texts), "reading", progress)
    candidates = write_candidates(read, work, filters=settings.filters, clean=settings.clean)
    if settings.deduplicate:
        candidates.drop_duplicates()
    if settings.dev_size is not None:
        dev_pairs = candidates.split_off(settings.dev_size, seed=settings.seed)
    overlap = candidates.drop_held_out(dev_pairs, settings.clean)
    _check_left(len(candidates), candidates)

    sample = _Sample(candidates, settings.tokenizer_pairs, progress)
    tokenizer = train_tokenizer(
        sample, vocab_size=settings.vocab_size, normalize=settings.normalize
    )
    tokenizer.save_pretrained(folder / "tokenizer")
    pairs = _track(candidates.pairs(), "encoding", progress, total=len(candidates))
    counts, dropped = encode_pairs(
        pairs, folder / "train", tokenizer=tokenizer, filters=settings.filters
    )
    candidates.dropped.update(dropped)
    _check_left(counts["pairs"], candidates)
    dev_counts, _ = encode_pairs(dev_pairs, folder / "dev", tokenizer=tokenizer)
    _write_text(dev_pairs, folder)
    work.unlink()
    num_blank = sum(not all(map(settings.clean, pair)) for pair in dev_pairs)
    return {
        "train": {"read": candidates.num_read, "dropped": candidates.dropped, **counts, **overlap},
        "dev": {**dev_counts, "blank": num_blank, "split_off": settings.dev_size is not None},
        "tokenizer": {"vocab_size": len(tokenizer), "pairs": len(sample)},
    }


def _agree_on_languages(
    texts: Sequence[ParallelText], source: str | None, target: str | None
) -> tuple[str, str]:
    """Source and target as given, else as all the names of files tell."""
    if source and target:
        return source, target
    known = {names: text for text in texts if (names := text.languages())}
    if len(known) > 1:
        told = "; ".join(f"{' → '.join(names)} in {text}" for names, text in known.items())
        raise ValueError(
            f"All files must be of one source and one target language; got {told}. If the names "
            "of the files mislead, name the languages."
        )
    names = next(iter(known), ("src", "tgt"))
    return source or names[0], target or names[1]


class _Sample:
    """Texts of both sides from evenly spaced pairs, as often as they are asked for."""

    def __init__(self, candidates: Candidates, limit: int, progress: Progress) -> None:
        self._candidates, self._progress = candidates, progress
        self._step = -(-len(candidates) // limit)

    def __len__(self) -> int:
        return -(-len(self._candidates) // self._step)

    def __iter__(self) -> Iterator[str]:
        pairs = islice(self._candidates.pairs(), 0, None, self._step)
        for pair in _track(pairs, "learning the tokenizer", self._progress, total=len(self)):
            yield from pair


def _track(
    pairs: Iterable[Pair], description: str, progress: Progress, *, total: int | None = None
) -> Iterator[Pair]:
    """The same pairs, while ``progress`` shows how many went by."""
    task, count = progress.add_task(description, total=total), 0
    for count, pair in enumerate(pairs, start=1):  # the last count is used
        yield pair
        if count % 1000 == 0:
            progress.update(task, completed=count)
    progress.update(task, completed=count, total=count)


def _check_left(num_left: int, candidates: Candidates) -> None:
    if num_left == 0:
        reasons = ", ".join(
            f"{count} {name}" for name, count in candidates.dropped.items() if count
        )
        raise ValueError(
            f"Some training pairs must pass the filters; of {candidates.num_read} none did "
            f"({reasons})."
        )


def _write_text(pairs: Iterable[Pair], folder: Path) -> None:
    for side, texts in zip(SIDES, zip(*pairs, strict=True), strict=True):
        lines = "".join(f"{text}\n" for text in texts)
        (folder / f"dev.{side}.txt").write_text(lines, encoding="utf-8", newline="\n")


def _describe_files(folder: Path) -> dict[str, Any]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": file_hash(path),
        }
        for path in paths
    }
