"""Batches of examples, in an order that depends on the seed alone."""

from collections.abc import Iterator

import numpy as np
from torch.utils.data import BatchSampler


class TokenBatches(BatchSampler):
    """All batches of a whole training, as lists of example numbers.

    Examples of about the same length share a batch, such that the number of examples times the
    longest is at most ``max_tokens``. Every epoch has the same number of batches, made up anew and
    in a new order. The order depends on ``seed`` alone: not on the number of processes, and not on
    the step from which training was resumed.

    Args:
        lengths: Length ``(n,)`` of each example; that of the longer side for pairs.
        max_tokens: Tokens in a batch, padding included. An example longer than that is a batch of
            its own.
        seed: Seed of the order.
        num_batches: Total number of batches; one epoch if None.

    Example:
        >>> batches = TokenBatches(np.array([2, 9, 2, 3]), max_tokens=9, seed=0)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2, 3], [1]]
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        max_tokens: int,
        seed: int,
        num_batches: int | None = None,
    ) -> None:
        if len(lengths) == 0:
            raise ValueError("lengths must have at least one example; got none.")
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1; got {max_tokens}.")
        self.lengths = _coarse(np.asarray(lengths, dtype=np.int64))
        self.seed = seed
        self._bounds = _bounds(np.sort(self.lengths), max_tokens)
        self.num_batches = self.per_epoch if num_batches is None else num_batches

    @property
    def per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return len(self._bounds) - 1

    def epoch(self, number: int) -> list[np.ndarray]:
        """Return the batches of one epoch."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed % 2**63, number]))
        # Shuffled within each length only: the sorted lengths, and so the bounds, stay the same.
        order = rng.permutation(len(self.lengths))
        order = order[np.argsort(self.lengths[order], kind="stable")]
        pieces = [order[a:b] for a, b in zip(self._bounds, self._bounds[1:], strict=False)]
        return [pieces[i] for i in rng.permutation(len(pieces))]

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        made, epoch = 0, 0
        while made < self.num_batches:
            for batch in self.epoch(epoch)[: self.num_batches - made]:
                yield batch.tolist()
                made += 1
            epoch += 1


class RunningNumbers(BatchSampler):
    """Batches of numbers 0, 1, 2 … for examples that are generated on demand, none twice.

    Args:
        size: Number of examples in a batch.
        num_batches: Total number of batches.

    Example:
        >>> list(RunningNumbers(2, num_batches=3))
        [[0, 1], [2, 3], [4, 5]]
    """

    def __init__(self, size: int, *, num_batches: int) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1; got {size}.")
        self.size, self.num_batches = size, num_batches

    @property
    def per_epoch(self) -> int:
        """Number of batches: the whole training is one epoch."""
        return self.num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        for i in range(self.num_batches):
            yield list(range(i * self.size, (i + 1) * self.size))


def _coarse(lengths: np.ndarray) -> np.ndarray:
    """Round lengths up by at most an eighth, so that many examples share one."""
    magnitude = np.floor(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    steps: np.ndarray = 2 ** np.maximum(magnitude - 3, 0)
    coarse: np.ndarray = -(-lengths // steps) * steps
    return coarse


def _bounds(lengths: np.ndarray, max_tokens: int) -> list[int]:
    """Cut sorted lengths into runs of at most ``max_tokens`` when padded."""
    bounds = [0]
    for i, length in enumerate(lengths.tolist()):
        # The newest length is the longest so far.
        if (i + 1 - bounds[-1]) * length > max_tokens and i > bounds[-1]:
            bounds.append(i)
    return [*bounds, len(lengths)]
