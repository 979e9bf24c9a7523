"""MQMTAR: values of several tokens to be recalled by keys of several tokens, several at once."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from adasparse.longcontext.tasks.streams import (
    Words,
    below,
    draw,
    random_order,
    random_subset,
    words,
)
from adasparse.longcontext.tasks.task import FIRST, Examples, Integers, Task, source_and_target

_ALPHABET = 256
#: Pools are of this number squared.
_POOL_SIDE = 100
#: Seed of the pools, which are the same for all examples of all seeds.
_POOLS = 2025
#: Tokens of a pair: two of the key, the separator, two of the value, a space.
_PAIR = 6
_SPACE, _COLON = FIRST + _ALPHABET, FIRST + _ALPHABET + 1
_KEYS, _VALUES, _PLACES, _QUERIES = range(4)


@cache
def pools() -> tuple[Integers, Integers]:
    """Return 10,000 keys and 10,000 values, ``(10000, 2)`` each, of two tokens."""
    order = random_order(draw(words(_POOLS, _POOLS + 1), 0, _ALPHABET**2))
    chosen = order[:, : _POOL_SIDE**2]
    keys, values = FIRST + np.stack((chosen // _ALPHABET, chosen % _ALPHABET), -1)
    return keys, values


@dataclass(frozen=True, kw_only=True)
class MultiQueryRecall(Task):
    """Multi-query multi-token associative recall.

    Of the ``length`` tokens of the context ``share`` belong to pairs, each written as two tokens of
    a key, a separator, two tokens of a value and a space; the others are spaces. Pairs stand in
    random places among the spaces. The keys of ``num_queries`` pairs follow, drawn at random and
    maybe the same twice; the target is their values in this order. Keys and values come from fixed
    pools of 10,000 each, no two of an example are the same, and they are paired anew in each.

    Ids 4 to 259 are the letters, 260 is the space and 261 the separator.

    Args:
        share: Share of the context that is pairs; there are 10,000 of them at most.
        num_queries: Number of keys that are asked for.
    """

    name: ClassVar[str] = "mqmtar"
    share: float = 0.8
    num_queries: int = 4

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.share <= 1 or self.num_queries < 1:
            raise ValueError(
                "share must be above 0 and at most 1, and num_queries at least 1; "
                f"got {self.share} and {self.num_queries}."
            )

    @property
    def shortest(self) -> int:  # type: ignore[override]
        """The length that has room for one pair."""
        around = int(_PAIR / self.share)
        return around if self._num_pairs(around) else around + 1

    @property
    def own_tokens(self) -> tuple[str, ...]:
        """Letters, the space and the separator."""
        return (*(f"a{i}" for i in range(_ALPHABET)), "<space>", ":")

    def _num_pairs(self, length: int) -> int:
        return min(int(self.share * length / _PAIR), _POOL_SIDE**2)

    def examples(self, keys: Words, length: int) -> Examples:
        """Return BOS context queries SEP values EOS."""
        size, pairs = len(keys), self._num_pairs(length)
        all_keys, all_values = pools()
        chosen_keys = all_keys[random_subset(keys, _KEYS, pairs, side=_POOL_SIDE)]
        chosen_values = all_values[random_subset(keys, _VALUES, pairs, side=_POOL_SIDE)]
        # Pairs and single spaces in random order; what comes before a pair says where it begins.
        items = pairs + length - _PAIR * pairs
        places = np.sort(random_order(draw(keys, _PLACES, items))[:, :pairs], axis=1)
        starts = places + (_PAIR - 1) * np.arange(pairs)
        context = np.full((size, length), _SPACE)
        rows = np.arange(size)[:, None]
        for i in range(2):
            context[rows, starts + i] = chosen_keys[..., i]
            context[rows, starts + 3 + i] = chosen_values[..., i]
        context[rows, starts + 2] = _COLON
        asked = below(draw(keys, _QUERIES, self.num_queries), pairs)
        queries = chosen_keys[rows, asked].reshape(size, -1)
        target = chosen_values[rows, asked].reshape(size, -1)
        answers = (starts[rows, asked][..., None] + np.array([3, 4])).reshape(size, -1)
        return source_and_target(np.concatenate((context, queries), 1), target, answers)
