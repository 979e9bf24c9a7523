"""2Back: the token two before each token."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adasparse.longcontext.tasks.streams import Words, below, draw
from adasparse.longcontext.tasks.task import (
    FIRST,
    IGNORED,
    NOWHERE,
    Examples,
    Task,
    source_with_labels,
)

#: Number of the random stream: the one of the published examples.
_SYMBOLS = 1


@dataclass(frozen=True, kw_only=True)
class TwoBack(Task):
    """The token two before each token; the first two have no label.

    Args:
        num_symbols: Number of symbols, equally likely; id ``4 + i`` is symbol i.
    """

    name: ClassVar[str] = "2back"
    shortest: ClassVar[int] = 3
    num_symbols: int = 16

    @property
    def own_tokens(self) -> tuple[str, ...]:
        """The symbols."""
        return tuple(f"s{i}" for i in range(self.num_symbols))

    def examples(self, keys: Words, length: int) -> Examples:
        """Return BOS source EOS with earlier tokens as labels."""
        source = FIRST + below(draw(keys, _SYMBOLS, length), self.num_symbols)
        labels = np.full_like(source, IGNORED)
        labels[:, 2:] = source[:, :-2]
        answers = np.full_like(source, NOWHERE)
        answers[:, 2:] = np.arange(length - 2)
        return source_with_labels(source, labels, answers)
