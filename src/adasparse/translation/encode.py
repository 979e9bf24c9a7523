"""Pairs of sentences as token ids on disk."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from adasparse.translation.arrays import RaggedWriter
from adasparse.translation.data import SIDES
from adasparse.translation.filters import Filters

__all__ = ["encode_pairs"]

BATCH = 4096


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    stem: Path,
    *,
    tokenizer: PreTrainedTokenizerFast,
    filters: Filters | None = None,
) -> tuple[dict[str, int], Counter[str]]:
    """Write token ids of pairs to files that begin with ``stem``, a batch at a time.

    Args:
        pairs: Source and target of each.
        stem: Such as ``folder/train``.
        tokenizer: Ends every sentence in ``</s>``.
        filters: Limits of tokens; without, every pair is kept.

    Returns:
        Numbers of pairs and tokens written, and of pairs dropped for each reason.
    """
    backend = tokenizer.backend_tokenizer
    num_pairs, dropped = 0, Counter[str]()
    source_stem, target_stem = (stem.with_name(f"{stem.name}.{side}") for side in SIDES)
    with (
        RaggedWriter(source_stem, vocab_size=len(tokenizer)) as source,
        RaggedWriter(target_stem, vocab_size=len(tokenizer)) as target,
    ):
        for batch in _batches(pairs):
            rows = [
                [encoding.ids for encoding in backend.encode_batch_fast(list(texts))]
                for texts in zip(*batch, strict=True)
            ]
            if filters is not None:
                rejected = filters.reject_tokens(*(np.array([*map(len, side)]) for side in rows))
                dropped.update({reason: int(mask.sum()) for reason, mask in rejected.items()})
                keep = np.flatnonzero(~np.any(list(rejected.values()), axis=0))
                rows = [[side[row] for row in keep] for side in rows]
            source.append(rows[0])
            target.append(rows[1])
            num_pairs += len(rows[0])
    counts = {
        "pairs": num_pairs,
        "source_tokens": source.num_tokens,
        "target_tokens": target.num_tokens,
    }
    return counts, dropped


def _batches(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(pairs)
    while batch := list(islice(iterator, BATCH)):
        yield batch
