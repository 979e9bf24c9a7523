"""Sort, Copy and Reverse: all tokens of the source in another order."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adasparse.longcontext.tasks.streams import Words, below, draw
from adasparse.longcontext.tasks.task import FIRST, Examples, Integers, Task, source_and_target


@dataclass(frozen=True, kw_only=True)
class _Rearrange(Task):
    """Numbers drawn evenly, to be given back in another order.

    Args:
        num_symbols: Number of different numbers; id ``4 + i`` is number i.
    """

    num_symbols: int = 32

    @property
    def own_tokens(self) -> tuple[str, ...]:
        """The numbers."""
        return tuple(str(i) for i in range(self.num_symbols))

    def examples(self, keys: Words, length: int) -> Examples:
        """Return BOS source SEP target EOS."""
        source = FIRST + below(draw(keys, 0, length), self.num_symbols)
        order = self._order(source)
        return source_and_target(source, np.take_along_axis(source, order, 1), order)

    def _order(self, source: Integers) -> Integers:
        """Return which token comes when: ``(s, m)``."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Sort(_Rearrange):
    """The numbers in rising order."""

    name: ClassVar[str] = "sort"

    def _order(self, source: Integers) -> Integers:
        return np.argsort(source, axis=1, kind="stable")


@dataclass(frozen=True, kw_only=True)
class Copy(_Rearrange):
    """The numbers as they are."""

    name: ClassVar[str] = "copy"

    def _order(self, source: Integers) -> Integers:
        return np.broadcast_to(np.arange(source.shape[1]), source.shape)


@dataclass(frozen=True, kw_only=True)
class Reverse(_Rearrange):
    """The numbers backward."""

    name: ClassVar[str] = "reverse"

    def _order(self, source: Integers) -> Integers:
        return np.broadcast_to(np.arange(source.shape[1])[::-1], source.shape)
