"""LocalCount: the number of equal tokens right before each token."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adasparse.longcontext.tasks.streams import Words, below, draw
from adasparse.longcontext.tasks.task import FIRST, Examples, Task, source_with_labels

_RUNS, _SYMBOLS = range(2)


@dataclass(frozen=True, kw_only=True)
class LocalCount(Task):
    """Count the equal tokens right before each token, in runs of random length.

    Two runs side by side are of different symbols, all others being equally likely. The last run
    ends where the length does. Ids ``4 + i`` are symbols, those after them the labels 0, 1, 2 …

    Args:
        num_symbols: Number of symbols.
        shortest_run: Length of the shortest run of equal tokens.
        longest_run: Length of the longest run, which is also the number of labels.
    """

    name: ClassVar[str] = "local-count"
    train_lengths: ClassVar[tuple[int, int]] = (64, 128)
    num_symbols: int = 16
    shortest_run: int = 2
    longest_run: int = 48

    @property
    def own_tokens(self) -> tuple[str, ...]:
        """Symbols and labels."""
        symbols = (f"s{i}" for i in range(self.num_symbols))
        return (*symbols, *(str(i) for i in range(self.longest_run)))

    def examples(self, keys: Words, length: int) -> Examples:
        """Return BOS source EOS with counts as labels."""
        size = len(keys)
        num_runs = -(-length // self.shortest_run)
        span = self.longest_run - self.shortest_run + 1
        runs = self.shortest_run + below(draw(keys, _RUNS, num_runs), span)
        ends = np.cumsum(runs, axis=1)
        begins = np.zeros((size, length), dtype=np.int64)
        rows, run = np.nonzero(ends < length)
        begins[rows, ends[rows, run]] = 1
        which = np.cumsum(begins, axis=1)
        bits = draw(keys, _SYMBOLS, num_runs)
        # A step of 1 to num_symbols - 1 from each run to the next leads to any other symbol.
        steps = 1 + below(bits, self.num_symbols - 1)
        steps[:, 0] = below(bits[:, 0], self.num_symbols)
        symbols = np.cumsum(steps, axis=1) % self.num_symbols
        place = np.arange(length)
        start = np.maximum.accumulate(begins * place, axis=1)
        return source_with_labels(
            FIRST + np.take_along_axis(symbols, which, 1),
            FIRST + self.num_symbols + place - start,
            start,
        )
