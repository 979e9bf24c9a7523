# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
"""Dropout bits as a hash of the seed and the place, the same in every backend."""

import triton
import triton.language as tl


@triton.jit
def row_keys(seed, row):
    """Two 32-bit numbers for each row, by SplitMix64."""
    x = (seed + (row + 1) * -7046029254386353131).to(tl.uint64)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return (x & 0xFFFFFFFF).to(tl.uint32), (x >> 32).to(tl.uint32)


@triton.jit
def is_kept(key0, key1, j, threshold):
    """Whether dropout keeps the weights of keys ``j``, one row for each pair of numbers."""
    y = j.to(tl.uint32)[None, :] * 0x9E3779B1 + key0[:, None]
    y = (y ^ (y >> 16)) * 0x85EBCA6B
    y = y ^ key1[:, None]
    y = (y ^ (y >> 13)) * 0xC2B2AE35
    y = y ^ (y >> 16)
    return y >= threshold
