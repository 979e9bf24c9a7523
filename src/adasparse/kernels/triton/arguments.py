# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
"""Arguments that all attention kernels share."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

#: Added to every integer before it is passed on, see ``encode``.
OFFSET = tl.constexpr(1 << 40)


def encode(n: int) -> int:
    """Return an int64 divisible by 16, whatever ``n`` is.

    Triton compiles a kernel anew for each integer that is 1, a multiple of 16 or beyond 32 bits,
    and ``do_not_specialize`` does not reach into tuples. Encoded, all integers look the same.
    """
    return (n + (1 << 40)) * 16


class Inputs(NamedTuple):
    """Addresses of the tensors of an attention problem, None for what it does not have."""

    query: Any
    key: Any
    value: Any
    eps: Any
    mask: Any
    lengths: Any
    slopes: Any
    seed: Any
    sinks: Any = None
    starts_q: Any = None  # offsets of the queries of each sequence of a packed batch, and the end
    starts_k: Any = None
    pages: Any = None


class Sizes(NamedTuple):
    """Encoded integers: key j is visible to query i if ``i - left <= j <= i + right``.

    In a packed batch ``num_q`` and ``num_k`` are the most of a sequence, the window is that of a
    last query at the last key, and the totals are those of all sequences.
    """

    num_heads: int
    num_kv_heads: int
    num_q: int
    num_k: int
    dim: int
    dim_v: int
    left: int
    right: int
    drop_threshold: int
    total_q: int | None = None
    total_k: int | None = None
    num_pages: int | None = None
    page_size: int | None = None


class Strides(NamedTuple):
    """Encoded strides of (batch, head, row), and (batch, head, query, key) of the mask.

    Those of query, key and value are in units of 16 if ``Flags.is_aligned``.
    """

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    mask: tuple[int, ...]


class Factors(NamedTuple):
    """Factors of the dot products and of the weights that dropout keeps; bound of the scores."""

    scale: float
    keep: float
    softcap: float | None = None


class Flags(NamedTuple):
    """Everything a kernel is compiled for."""

    kind: int  # one of maps.SOFTMAX to GENERAL_CUDA
    is_mixed: bool  # heads with alpha = 1 belong to the softmax kernel, the others do not
    per_query: bool  # eps is (b h q), else (b h)
    has_left: bool
    has_right: bool
    has_slopes: bool
    has_lengths: bool
    mask: int  # 0 none, 1 bool, 2 float
    is_raw: bool  # scores and normalizers are in units of the dot product
    has_dropout: bool
    precision: str | None
    is_aligned: bool  # strides of query, key and value are multiples of 16
    d: int  # head size of query and key, padded to a power of two
    e: int  # that of the values
    has_pad: bool
    has_pad_v: bool
    block_m: int
    block_n: int
    has_softcap: bool = False
    has_sinks: bool = False
    is_packed: bool = False
    has_pages: bool = False


@triton.jit
def decode(code):
    """Undo ``encode`` in 64 bits."""
    return (code >> 4) - OFFSET


@triton.jit
def size(code):
    """Undo ``encode`` in 32 bits."""
    return decode(code).to(tl.int32)
