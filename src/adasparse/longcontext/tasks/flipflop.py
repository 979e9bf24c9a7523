"""Flip-Flop: a bit to be kept among others that are to be ignored."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adasparse.longcontext.tasks.streams import Words, below, draw
from adasparse.longcontext.tasks.task import FIRST, Examples, Task, source_and_target

WRITE, IGNORE, READ, ZERO, ONE = range(FIRST, FIRST + 5)
_COMMANDS, _BITS = range(2)
#: Shares of commands are rounded to one in so many.
_GRAIN = 10**6


@dataclass(frozen=True, kw_only=True)
class FlipFlop(Task):
    """Commands to write, ignore or read a bit, each with its bit; the last one reads.

    The first command writes. A bit that is written or ignored is random; one that is read is the
    last one written, which is also the target of the last read. ``length`` counts commands and
    bits together and is rounded down to an even number; the last bit is the target, so that the
    source has one token less.

    Ids 4, 5 and 6 are write, ignore and read, 7 and 8 the bits 0 and 1.

    Args:
        write_share: Share of writes among the commands between the first and the last.
        read_share: Share of reads among the same.
    """

    name: ClassVar[str] = "flip-flop"
    shortest: ClassVar[int] = 4
    write_share: float = 0.1
    read_share: float = 0.1

    def __post_init__(self) -> None:
        """Check the settings."""
        shares = self.write_share, self.read_share
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(
                "write_share and read_share must be at least 0 and together at most 1; "
                f"got {shares[0]} and {shares[1]}."
            )

    @property
    def own_tokens(self) -> tuple[str, ...]:
        """Commands and bits."""
        return "write", "ignore", "read", "0", "1"

    def examples(self, keys: Words, length: int) -> Examples:
        """Return BOS source SEP bit EOS."""
        size, count = len(keys), length // 2
        number = below(draw(keys, _COMMANDS, count), _GRAIN)
        writes = round(self.write_share * _GRAIN)
        reads = writes + round(self.read_share * _GRAIN)
        commands = np.where(number < writes, WRITE, np.where(number < reads, READ, IGNORE))
        commands[:, 0], commands[:, -1] = WRITE, READ
        bits = below(draw(keys, _BITS, count), 2)
        last = np.maximum.accumulate((commands == WRITE) * np.arange(count), axis=1)
        bits = np.where(commands == READ, np.take_along_axis(bits, last, 1), bits)
        source = np.stack((commands, ZERO + bits), -1).reshape(size, -1)
        return source_and_target(source[:, :-1], source[:, -1:], 2 * last[:, -1:] + 1)
