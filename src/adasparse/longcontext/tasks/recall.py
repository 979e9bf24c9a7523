"""MQMTAR: values of several tokens to be recalled by keys of several tokens, several at once."""

import math
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

#: Pools are of this number squared, or of all that the letters can make if those are fewer.
_POOL_SIDE = 100
#: Seed of the pools, which are the same for all examples of all seeds.
_POOLS = 2025
#: Tokens of a pair: two of the key, the separator, two of the value, a space.
_PAIR = 6
_KEYS, _VALUES, _PLACES, _QUERIES, _ALIKE, _LETTERS = range(6)


@cache
def pools(num_symbols: int = 256) -> tuple[Integers, Integers]:
    """Return 10,000 keys and 10,000 values, ``(10000, 2)`` each, of two out of so many letters.

    Fewer than 100 letters make fewer of them.
    """
    order = random_order(draw(words(_POOLS, _POOLS + 1), 0, num_symbols**2))
    chosen = order[:, : _pool_side(num_symbols) ** 2]
    keys, values = FIRST + np.stack((chosen // num_symbols, chosen % num_symbols), -1)
    return keys, values


def _pool_side(num_symbols: int) -> int:
    return min(_POOL_SIDE, num_symbols)


@dataclass(frozen=True, kw_only=True)
class MultiQueryRecall(Task):
    """Multi-query multi-token associative recall.

    Of the ``length`` tokens of the context ``share`` belong to pairs, each written as two tokens of
    a key, a separator, two tokens of a value and a space; the others are spaces. Pairs stand in
    random places among the spaces. The keys of ``num_queries`` pairs follow, drawn at random and
    maybe the same twice; the target is their values in this order. Keys and values come from fixed
    pools of 10,000 each, no two of an example are the same, and they are paired anew in each.

    Ids 4 to 259 are the letters, 260 is the space and 261 the separator.

    In a short context hardly any two keys have a letter in common, nor do values, and a model that
    looks at one letter is right nearly every time; in a long one it fails. Fewer letters, or
    ``look_alikes`` among the examples of training, show it early that two count.

    Args:
        share: Share of the context that is pairs; there are 10,000 of them at most, or as many as
            keys.
        num_queries: Number of keys that are asked for.
        num_symbols: Number of letters; as published, 256.
        look_alikes: Share of the examples whose keys and values are made of so few letters, chosen
            anew for each, that half of all words of two occur as keys; as published, 0.
    """

    name: ClassVar[str] = "mqmtar"
    share: float = 0.8
    num_queries: int = 4
    num_symbols: int = 256
    look_alikes: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.share <= 1 or self.num_queries < 1 or self.num_symbols < 2:
            raise ValueError(
                "share must be above 0 and at most 1, num_queries at least 1 and num_symbols at "
                f"least 2; got {self.share}, {self.num_queries} and {self.num_symbols}."
            )
        if not 0 <= self.look_alikes <= 1:
            raise ValueError(f"look_alikes must be between 0 and 1; got {self.look_alikes}.")

    @property
    def shortest(self) -> int:  # type: ignore[override]
        """The length that has room for one pair."""
        around = int(_PAIR / self.share)
        return around if self._num_pairs(around) else around + 1

    @property
    def own_tokens(self) -> tuple[str, ...]:
        """Letters, the space and the separator."""
        return (*(f"a{i}" for i in range(self.num_symbols)), "<space>", ":")

    def _num_pairs(self, length: int) -> int:
        return min(int(self.share * length / _PAIR), _pool_side(self.num_symbols) ** 2)

    def examples(self, keys: Words, length: int) -> Examples:
        """Return BOS context queries SEP values EOS."""
        size, pairs = len(keys), self._num_pairs(length)
        side = _pool_side(self.num_symbols)
        chosen_keys, chosen_values = (
            pool[random_subset(keys, stream, pairs, side=side)]
            for pool, stream in zip(pools(self.num_symbols), (_KEYS, _VALUES), strict=True)
        )
        self._make_alike(keys, chosen_keys, chosen_values)
        # Pairs and single spaces in random order; what comes before a pair says where it begins.
        items = pairs + length - _PAIR * pairs
        places = np.sort(random_order(draw(keys, _PLACES, items))[:, :pairs], axis=1)
        starts = places + (_PAIR - 1) * np.arange(pairs)
        space, colon = FIRST + self.num_symbols, FIRST + self.num_symbols + 1
        context = np.full((size, length), space)
        rows = np.arange(size)[:, None]
        for i in range(2):
            context[rows, starts + i] = chosen_keys[..., i]
            context[rows, starts + 3 + i] = chosen_values[..., i]
        context[rows, starts + 2] = colon
        asked = below(draw(keys, _QUERIES, self.num_queries), pairs)
        queries = chosen_keys[rows, asked].reshape(size, -1)
        target = chosen_values[rows, asked].reshape(size, -1)
        answers = (starts[rows, asked][..., None] + np.array([3, 4])).reshape(size, -1)
        return source_and_target(np.concatenate((context, queries), 1), target, answers)

    def _make_alike(self, keys: Words, *chosen: Integers) -> None:
        """Spell the keys and values ``(s, pairs, 2)`` of some examples with few letters."""
        # Even chances in steps of 2^-32, so that 1 means all.
        drawn = below(draw(keys, _ALIKE, 1)[:, 0], 2**32)
        alike = np.flatnonzero(drawn < int(self.look_alikes * 2**32))
        pairs = chosen[0].shape[1]
        few = min(self.num_symbols, math.isqrt(2 * pairs - 1) + 1)
        letters = random_order(draw(keys[alike], _LETTERS, self.num_symbols))[:, :few]
        for stream, words_of_two in zip((_KEYS, _VALUES), chosen, strict=True):
            codes = random_subset(keys[alike], stream, pairs, side=few)
            both = np.concatenate((codes // few, codes % few), 1)
            spelled = FIRST + np.take_along_axis(letters, both, 1)
            words_of_two[alike] = np.stack((spelled[:, :pairs], spelled[:, pairs:]), -1)
