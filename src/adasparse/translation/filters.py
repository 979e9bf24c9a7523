"""Filters of training pairs, with counts of the dropped ones."""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["REASONS", "Filters", "hash_pairs", "hash_text", "keep_first"]

#: Why a training pair is dropped, in the order in which they are tested.
REASONS = (
    "empty",
    "too_many_characters",
    "in_dev",
    "duplicate",
    "too_few_tokens",
    "too_many_tokens",
    "length_ratio",
)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Limits that a training pair must keep. ``None`` is no limit.

    Args:
        max_chars: Characters on either side, tested before the tokenizer sees the pair.
        min_tokens: Tokens on either side, ``</s>`` not counted.
        max_tokens: The same from above.
        max_ratio: Tokens of the longer side over those of the shorter, ``</s>`` counted on both,
            so that pairs of a few words are not all refused.
    """

    max_chars: int | None = 2000
    min_tokens: int = 1
    max_tokens: int | None = 256
    max_ratio: float | None = 4.0

    def __post_init__(self) -> None:
        problems = []
        if self.max_chars is not None and self.max_chars < 1:
            problems.append(f"max_chars must be at least 1; got {self.max_chars}")
        if self.min_tokens < 0:
            problems.append(f"min_tokens must be at least 0; got {self.min_tokens}")
        if self.max_tokens is not None and self.max_tokens < max(1, self.min_tokens):
            problems.append(
                f"max_tokens must be at least 1 and min_tokens ({self.min_tokens}); "
                f"got {self.max_tokens}"
            )
        if self.max_ratio is not None and not self.max_ratio >= 1:
            problems.append(f"max_ratio must be at least 1; got {self.max_ratio}")
        if problems:
            raise ValueError("; ".join(problems) + ".")

    def reject_text(self, source: str, target: str) -> str | None:
        """Why the normalized pair is dropped; ``None`` if it is kept."""
        if not source or not target:
            return "empty"
        if self.max_chars is not None and max(len(source), len(target)) > self.max_chars:
            return "too_many_characters"
        return None

    def reject_tokens(
        self, source: NDArray[np.int64], target: NDArray[np.int64]
    ) -> dict[str, NDArray[np.bool_]]:
        """Return the pairs (pairs) dropped for each reason; a pair has one reason at most.

        Args:
            source: Tokens of each source (pairs), ``</s>`` included.
            target: Tokens of each target (pairs), ``</s>`` included.
        """
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        too_short = shorter - 1 < self.min_tokens
        too_long = ~too_short & (longer - 1 > (self.max_tokens or math.inf))
        uneven = longer > shorter * (self.max_ratio or math.inf)
        return {
            "too_few_tokens": too_short,
            "too_many_tokens": too_long,
            "length_ratio": uneven & ~too_short & ~too_long,
        }


def hash_text(text: str) -> int:
    """64 bits that tell texts apart: among ten million, two are confused once in 10⁵ corpora."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def hash_pairs(source: NDArray[np.uint64], target: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes (pairs) that depend on both sides and on which is which."""
    hashes: NDArray[np.uint64] = source * np.uint64(0x9E3779B97F4A7C15) + target
    return hashes


def keep_first(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return the hashes (pairs) that were not there before, as a mask."""
    keep = np.zeros(len(hashes), dtype=np.bool_)
    keep[np.unique(hashes, return_index=True)[1]] = True
    return keep
