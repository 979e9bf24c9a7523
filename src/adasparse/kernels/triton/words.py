# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""Bit masks of key blocks: bit t of word w of a block of queries is key block 32 w + t."""

import triton
import triton.language as tl

from adasparse.kernels.triton.interpreter import IS_INTERPRETED


@triton.jit
def count_bits(word):
    """Count the ones of an int32, without a library call that only one vendor has."""
    x = word.to(tl.uint32, bitcast=True)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def lowest_bit(word):
    """Return the lowest one of an int32 and its place, read off the exponent of a float."""
    bit = word & (0 - word)
    place = (bit.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    return bit, place


@triton.jit
def low_bits(count):
    """Return an int32 whose ``count`` lowest bits are ones; any count is accepted."""
    count = tl.minimum(tl.maximum(count, 0), 32)
    return tl.where(count == 32, -1, (1 << tl.minimum(count, 31)) - 1)


@triton.jit
def any_bits(bits, AXIS: tl.constexpr):
    """Bitwise or along an axis. The interpreter would run Python for each element."""
    if IS_INTERPRETED:
        word = tl.max(bits & 1, AXIS)
        for place in range(1, 32):
            word |= tl.max((bits >> place) & 1, AXIS) << place
        return word
    else:
        return tl.reduce_or(bits, AXIS)


@triton.jit(do_not_specialize=["q_blocks", "k_blocks", "k_words", "q_words"])
def transpose_kernel(words, transposed, q_blocks, k_blocks, k_words, q_words):
    """Turn (heads, q blocks, k words) into (heads, k blocks, q words), 32 x 32 bits a program."""
    pid = tl.program_id(0)
    q_word = pid % q_words
    k_word = (pid // q_words) % k_words
    head = (pid // q_words // k_words).to(tl.int64)
    i = tl.arange(0, 32)
    q_block = q_word * 32 + i
    at = (head * q_blocks + q_block) * k_words + k_word
    rows = tl.load(words + at, mask=q_block < q_blocks, other=0)
    bits = (rows[:, None] >> i[None, :]) & 1
    columns = any_bits(bits << i[:, None], 0)
    k_block = k_word * 32 + i
    at = (head * k_blocks + k_block) * q_words + q_word
    tl.store(transposed + at, columns, mask=k_block < k_blocks)
