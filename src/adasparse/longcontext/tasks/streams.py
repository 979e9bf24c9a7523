"""Random numbers that are the same everywhere: a hash of where they are asked for.

Number ``i`` of stream ``s`` of example ``e`` is SplitMix64 of these three and the seed, in unsigned
64-bit integers that wrap around. Nothing else enters: no generator of a library whose next version
may draw otherwise, no floating point, no sort in which equal elements could change places. An
example does not depend on how many others are drawn along with it.
"""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
#: Rounds of the permutation; four are enough for one that looks random.
_ROUNDS = 6


def words(*numbers: int) -> Words:
    """Return integers as they are, those beyond 64 bits reduced."""
    return np.array([number % 2**64 for number in numbers], dtype=np.uint64)


def mix(x: Words) -> Words:
    """Scramble every word, each to another one: the output function of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * _FACTORS[0]
    x = (x ^ (x >> np.uint64(27))) * _FACTORS[1]
    scrambled: Words = x ^ (x >> np.uint64(31))
    return scrambled


def draw(keys: Words, stream: int, count: int) -> Words:
    """Return ``count`` random words for each key: ``(s,)`` to ``(s, count)``."""
    start = mix(keys + mix(words(stream + 1) * _STEP))[:, None]
    return mix(start + np.arange(1, count + 1, dtype=np.uint64) * _STEP)


def below(bits: Words, bound: int) -> NDArray[np.int64]:
    """Map random words evenly to 0 … ``bound - 1``, for bounds up to 2^32."""
    scaled: Words = ((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)
    return scaled.astype(np.int64)


def random_order(bits: Words) -> NDArray[np.int64]:
    """Return each row of ``(s, n)`` random words as an order of 0 … ``n - 1``."""
    index_bits = max(1, (bits.shape[1] - 1).bit_length())
    mask = np.uint64((1 << index_bits) - 1)
    # The index in the lowest bits: all numbers are different, and any sort gives the same.
    numbered: Words = (bits & ~mask) | np.arange(bits.shape[1], dtype=np.uint64)
    order: Words = np.sort(numbered, axis=1) & mask
    return order.astype(np.int64)


def random_subset(keys: Words, stream: int, count: int, *, side: int) -> NDArray[np.int64]:
    """Return ``count`` different numbers out of ``side ** 2`` for each key, in random order.

    ``(s,)`` to ``(s, count)``, at the cost of those that are asked for: numbers 0, 1, 2 … go
    through a random permutation, a Feistel network on pairs of digits in base ``side``.
    """
    if count > side**2:
        raise ValueError(f"count must be at most {side**2}, all there are; got {count}.")
    round_keys = draw(keys, stream, _ROUNDS)
    index = np.arange(count, dtype=np.int64)
    left = np.broadcast_to(index // side, (len(keys), count))
    right = np.broadcast_to(index % side, (len(keys), count))
    for i in range(_ROUNDS):
        bits = mix(round_keys[:, i, None] + right.astype(np.uint64) * _STEP)
        left, right = right, (left + below(bits, side)) % side
    return left * side + right
