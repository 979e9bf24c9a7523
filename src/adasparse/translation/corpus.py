"""Aligned sentences from text files, one pair at a time.

Only a newline (or a carriage return and a newline) ends a line: the other separators of Unicode
are text, so they never shift one side against the other.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from adasparse._files import TextFile

__all__ = ["ParallelText", "TextFile", "language_of"]

#: Suffixes that look like the name of a language and are none.
_NO_LANGUAGES = {"bpe", "csv", "raw", "spm", "tok", "tsv", "txt"}


class ParallelText:
    """Pairs of sentences from two aligned files, one TSV file or one JSONL file.

    A file of pairs is known by its name: it ends in ``.tsv`` or ``.jsonl``, perhaps with ``.gz``.

    Args:
        paths: Source and target file, or one file of pairs.
        source_key: Field of a JSONL object with the source; a nested object named ``translation``
            is looked into. By default the name of the language, else ``source``.
        target_key: The same of the target, by default ``target``.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        source_key: str | None = None,
        target_key: str | None = None,
    ) -> None:
        self.files = [TextFile(path) for path in paths]
        self._keys = (source_key or "source", target_key or "target")
        first = self.files[0].path if self.files else Path()
        self._kind = Path(first.name.removesuffix(".gz")).suffix
        expected = 1 if self._kind in (".tsv", ".jsonl") else 2
        if len(self.files) != expected:
            raise ValueError(
                "Pairs come from two files of aligned lines, or from one file that ends in .tsv "
                f"or .jsonl; got {', '.join(str(path) for path in paths) or 'none'}."
            )
        if expected == 2 and self.files[0].path.samefile(self.files[1].path):
            raise ValueError(f"Source and target must be two files; both are {first}.")

    def languages(self) -> tuple[str, str] | None:
        """Source and target language where the names of the files tell them."""
        if self._kind == ".jsonl":
            names: tuple[str | None, ...] = self._keys
            is_known = self._keys != ("source", "target")
        else:
            names = tuple(language_of(file.path) for file in self.files)
            is_known = len(names) == 2 and None not in names and names[0] != names[1]
        return (str(names[0]), str(names[1])) if is_known else None

    def describe(self) -> list[dict[str, Any]]:
        """Name, lines and hash of each file, once all pairs were read."""
        return [
            {"name": file.path.name, "lines": file.num_lines, "sha256": file.sha256}
            for file in self.files
        ]

    def __str__(self) -> str:
        return " and ".join(str(file.path) for file in self.files)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Source and target of each pair; neither contains a newline.

        Raises:
            ValueError: Says what is wrong, and in which line.
        """
        has_source = has_target = False
        for source, target in self._read():
            has_source = has_source or not _is_blank(source)
            has_target = has_target or not _is_blank(target)
            yield source, target
        for has_text, side, file in (
            (has_source, "source", self.files[0]),
            (has_target, "target", self.files[-1]),
        ):
            if not has_text:
                raise ValueError(
                    f"The {side} side must have text; all of it in {file.path} is blank."
                )

    def _read(self) -> Iterator[tuple[str, str]]:
        if self._kind == ".tsv":
            return self._read_rows(_split_row)
        if self._kind == ".jsonl":
            return self._read_rows(self._parse_object)
        return self._read_aligned()

    def _read_aligned(self) -> Iterator[tuple[str, str]]:
        first, second = self.files
        for source, target in zip_longest(first.lines(), second.lines()):
            if source is not None and target is not None:
                yield source, target
        if first.num_lines != second.num_lines:
            raise ValueError(
                f"{first.path} and {second.path} must have the same number of lines; "
                f"got {first.num_lines} and {second.num_lines}."
            )

    def _read_rows(self, parse: Callable[[str], tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """One pair per line that is not blank."""
        (file,) = self.files
        for line in file.lines():
            if _is_blank(line):
                continue
            try:
                yield parse(line)
            except ValueError as error:
                raise ValueError(f"{file.path}, line {file.num_lines}: {error}") from error

    def _parse_object(self, line: str) -> tuple[str, str]:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"must be a JSON object ({error}).") from error
        if isinstance(fields, dict) and isinstance(fields.get("translation"), dict):
            fields = fields["translation"]
        source, target = (_field(fields, key) for key in self._keys)
        return source, target


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _split_row(line: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise ValueError(
            f"must be a source, a tab and a target; it has {len(columns)} columns. "
            "To take the first two of a file: cut -f1,2."
        )
    return columns[0], columns[1]


def _field(fields: Any, key: str) -> str:
    """The text under ``key``, on one line."""
    if not isinstance(fields, dict) or not isinstance(fields.get(key), str):
        known = f"the keys {', '.join(fields)}" if isinstance(fields, dict) else "no object"
        raise ValueError(f"must have text under {key!r}; it has {known}. Name the keys to use.")
    text: str = fields[key]
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text under {key!r} has half a surrogate pair.") from error
    return text.replace("\r\n", " ").replace("\n", " ").replace("\0", " ")


def language_of(path: Path) -> str | None:
    """Return what a name ends in, if it looks like a language: ``de`` of ``train.de.gz``."""
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    is_language = re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*", suffix)
    return suffix if is_language and suffix.lower() not in _NO_LANGUAGES else None
