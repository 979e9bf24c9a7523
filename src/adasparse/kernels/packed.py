"""Packed batches: their offsets, checked, and the problems and gradients of single sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from adasparse.kernels.problem import (
    AttentionGradients,
    AttentionProblem,
    numbers_of,
    with_tensors,
)

#: Step of the generator of dropout from one row to the next, as int64.
_ROW_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """The places of the sequences of a packed batch, read from its tensors.

    Args:
        query: ``n + 1`` offsets of queries.
        key: ``n`` offsets of first keys; all 0 if keys lie in pages.
        used: Number of keys that each sequence uses.
    """

    query: list[int]
    key: list[int]
    used: list[int]

    def queries(self, s: int) -> slice:
        """Return the queries of sequence ``s``."""
        return slice(self.query[s], self.query[s + 1])

    def keys(self, s: int) -> slice:
        """Return the keys that sequence ``s`` uses."""
        return slice(self.key[s], self.key[s] + self.used[s])


def is_packed(problem: AttentionProblem) -> bool:
    """Tell whether the batch is packed."""
    return problem.cu_seq_q is not None


def _check_offsets(name: str, offsets: Sequence[int], total: int) -> None:
    if offsets[0] != 0 or offsets[-1] != total or any(b < a for a, b in pairwise(offsets)):
        shown = offsets if len(offsets) <= 8 else [*offsets[:4], "...", *offsets[-3:]]
        raise ValueError(
            f"{name} must start at 0, never fall and end at {total}, the number of tokens; "
            f"got [{', '.join(map(str, shown))}]."
        )


def _check_longest(name: str, lengths: Sequence[int], limit: int | None) -> None:
    if limit is not None and max(lengths, default=0) > limit:
        raise ValueError(
            f"{name} must be at least the longest sequence, {max(lengths)}; got {limit}."
        )


def _lengths(offsets: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise(offsets)]


def offsets_of(problem: AttentionProblem) -> Offsets:
    """Return the places of all sequences; raises where tensors do not agree with each other.

    Reads values, and so waits for the device.
    """
    assert problem.cu_seq_q is not None
    query = numbers_of(problem.cu_seq_q)
    _check_offsets("cu_seq_q", query, problem.query.shape[2])
    _check_longest("max_q", _lengths(query), problem.max_q)
    if problem.block_table is not None:
        first, room = [0] * (len(query) - 1), _room_in_pages(problem)
    else:
        assert problem.cu_seq_k is not None
        key = numbers_of(problem.cu_seq_k)
        _check_offsets("cu_seq_k", key, problem.key.shape[2])
        first, room = key[:-1], _lengths(key)
    used = room if problem.key_lengths is None else numbers_of(problem.key_lengths)
    if any(not 0 <= u <= r for u, r in zip(used, room, strict=True)):
        s = next(s for s, (u, r) in enumerate(zip(used, room, strict=True)) if not 0 <= u <= r)
        raise ValueError(
            f"seqused_k must be from 0 to the number of keys of each sequence, {room[s]} for "
            f"sequence {s}; got {used[s]}."
        )
    _check_longest("max_k", used, problem.max_k)
    if problem.block_table is not None:
        _check_pages(problem.block_table, used, problem.key.shape)
    return Offsets(query=query, key=first, used=used)


def _room_in_pages(problem: AttentionProblem) -> list[int]:
    assert problem.block_table is not None
    n, pages = problem.block_table.shape
    return [pages * problem.key.shape[2]] * n


def _check_pages(table: Tensor, used: list[int], key: Sequence[int]) -> None:
    total, _, page_size, _ = key
    for s, row in enumerate(numbers_of(table)):
        for page in row[: -(-used[s] // max(page_size, 1))]:
            if not 0 <= page < total:
                raise ValueError(
                    f"block_table must hold pages from 0 to {total - 1}; got {page} for sequence "
                    f"{s}."
                )


def _paged(x: Tensor, pages: Tensor, used: int) -> Tensor:
    """Return the first keys ``(1, g, used, d)`` of some pages of ``(pages, g, page_size, d)``."""
    rows = x[pages.long()].transpose(0, 1)
    return rows.reshape(1, x.shape[1], -1, x.shape[3])[:, :, :used]


def seed_of_sequence(seed: Tensor, first_row: int) -> Tensor:
    """Return the seed that gives row 0 the dropout that row ``first_row`` has by ``seed``."""
    shift = first_row * _ROW_STEP % (1 << 64)
    return seed + (shift - (1 << 64) if shift >> 63 else shift)


def unpacked(problem: AttentionProblem, offsets: Offsets) -> list[AttentionProblem]:
    """Return the problem of each sequence of a packed batch; views unless keys lie in pages.

    The rows of dropout are numbered sequence by sequence, within each head by head: those of
    sequence ``s`` begin at ``h cu_seq_q[s]``.
    """
    alpha, table, seed = problem.alpha, problem.block_table, problem.seed
    heads = problem.query.shape[1]
    has_rows = alpha.dim() == 4 and alpha.shape[2] > 1
    problems = []
    for s in range(len(offsets.used)):
        queries, keys = offsets.queries(s), offsets.keys(s)
        key, value = (
            x[:, :, keys]
            if table is None
            else _paged(x, table[s, : -(-keys.stop // max(x.shape[2], 1))], keys.stop)
            for x in (problem.key, problem.value)
        )
        fields = {
            "query": problem.query[:, :, queries],
            "key": key,
            "value": value,
            "alpha": alpha[:, :, queries] if has_rows else alpha,
            "seed": None if seed is None else seed_of_sequence(seed, heads * queries.start),
            "position": keys.stop - keys.start - (queries.stop - queries.start),
        }
        nothing = dict.fromkeys(
            ("key_lengths", "cu_seq_q", "cu_seq_k", "block_table", "max_q", "max_k")
        )
        problems.append(with_tensors(problem, {**fields, **nothing}))
    return problems


def joined_gradients(
    problem: AttentionProblem, offsets: Offsets, parts: Sequence[AttentionGradients]
) -> AttentionGradients:
    """Return the gradients of a packed batch from those of its sequences.

    Keys that no sequence uses get zeros; keys and values in pages get none.
    """

    def placed(name: str, places: Sequence[slice]) -> Tensor | None:
        like, found = vars(problem)[name], [vars(part)[name] for part in parts]
        if not found or found[0] is None:
            return torch.zeros_like(like)
        whole = torch.zeros(like.shape, dtype=found[0].dtype, device=like.device)
        for place, part in zip(places, found, strict=True):
            whole[:, :, place] = part
        return whole

    def summed(name: str) -> Tensor | None:
        found = [vars(part)[name] for part in parts]
        if not found or found[0] is None:
            like = vars(problem)[name]
            return None if like is None else torch.zeros_like(like)
        return torch.stack(found).sum(0)

    every = range(len(offsets.used))
    queries, keys = [offsets.queries(s) for s in every], [offsets.keys(s) for s in every]
    is_paged = problem.block_table is not None
    return AttentionGradients(
        query=placed("query", queries),
        key=None if is_paged else placed("key", keys),
        value=None if is_paged else placed("value", keys),
        alpha=placed("alpha", queries) if problem.alpha.shape[2] > 1 else summed("alpha"),
        slopes=summed("slopes"),
        sinks=summed("sinks"),
    )
