"""Training pairs in a work file, written while they are read, and the selection among them."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from adasparse.translation.filters import REASONS, Filters, hash_pairs, hash_text, keep_first

__all__ = ["Candidates", "Pair", "write_candidates"]

Pair: TypeAlias = tuple[str, str]
Hashes: TypeAlias = NDArray[np.uint64]


@dataclass
class Candidates:
    """Pairs in a work file, which of them are chosen, and why the others are not.

    Args:
        path: The work file: source and target of each pair, one line each.
        source_hashes: Hash of each normalized source (pairs).
        target_hashes: Hash of each normalized target (pairs).
        num_read: Pairs that were read, those dropped at once included.
        dropped: Number of pairs dropped for each reason.
    """

    path: Path
    source_hashes: Hashes
    target_hashes: Hashes
    num_read: int
    dropped: dict[str, int]

    def __post_init__(self) -> None:
        self.is_chosen = np.ones(len(self.source_hashes), dtype=np.bool_)

    def __len__(self) -> int:
        return int(self.is_chosen.sum())

    def pairs(self) -> Iterator[Pair]:
        """The chosen pairs, as they were read."""
        return self._read(self.is_chosen)

    def _read(self, is_wanted: NDArray[np.bool_]) -> Iterator[Pair]:
        with self.path.open("rb") as file:
            lines = (line[:-1] for line in file)
            for source, target in compress(zip(lines, lines, strict=True), is_wanted):
                yield source.decode(), target.decode()

    def drop_duplicates(self) -> None:
        """Choose the first of equal pairs alone."""
        hashes = hash_pairs(self.source_hashes, self.target_hashes)[self.is_chosen]
        keep = keep_first(hashes)
        self.dropped["duplicate"] = len(keep) - int(keep.sum())
        self.is_chosen[self.is_chosen] = keep

    def split_off(self, size: int, *, seed: int) -> list[Pair]:
        """Take out ``size`` of the chosen pairs at random, in their order, and return them."""
        if size >= len(self):
            raise ValueError(
                f"dev_size must be less than the {len(self)} training pairs that are left after "
                f"filtering; got {size}."
            )
        rows = np.random.default_rng(seed).choice(len(self), size=size, replace=False)
        is_taken = np.zeros(len(self.is_chosen), dtype=np.bool_)
        is_taken[np.flatnonzero(self.is_chosen)[rows]] = True
        self.is_chosen &= ~is_taken
        return list(self._read(is_taken))

    def drop_held_out(
        self, held_out: Sequence[Pair], clean: Callable[[str], str]
    ) -> dict[str, int]:
        """Drop pairs that are in the dev set; count those kept that share one side with it."""
        sources, targets = (
            np.array([hash_text(clean(text)) for text in side], dtype=np.uint64)
            for side in zip(*held_out, strict=True)
        )
        pairs = hash_pairs(self.source_hashes, self.target_hashes)
        is_held_out = self.is_chosen & np.isin(pairs, hash_pairs(sources, targets))
        self.dropped["in_dev"] = int(is_held_out.sum())
        self.is_chosen &= ~is_held_out
        return {
            "source_in_dev": int((self.is_chosen & np.isin(self.source_hashes, sources)).sum()),
            "target_in_dev": int((self.is_chosen & np.isin(self.target_hashes, targets)).sum()),
        }


def write_candidates(
    pairs: Iterable[Pair], path: Path, *, filters: Filters, clean: Callable[[str], str]
) -> Candidates:
    """Write pairs that pass the limits of text to ``path``, as they are, and hash them."""
    hashes = array("Q"), array("Q")
    dropped: dict[str, int] = dict.fromkeys(REASONS, 0)
    num_read = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for source, target in pairs:
            num_read += 1
            cleaned = clean(source), clean(target)
            if reason := filters.reject_text(*cleaned):
                dropped[reason] += 1
                continue
            file.write(f"{source}\n{target}\n")
            for side, text in zip(hashes, cleaned, strict=True):
                side.append(hash_text(text))
    source_hashes, target_hashes = (np.frombuffer(side, dtype=np.uint64) for side in hashes)
    return Candidates(path, source_hashes, target_hashes, num_read, dropped)
