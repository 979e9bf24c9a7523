# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
# ruff: noqa: N803
"""Differences between Triton's interpreter, as of 3.7, and compiled kernels."""

import os

import triton
import triton.language as tl

#: Whether Triton's interpreter runs the kernels.
IS_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def narrow(x, DTYPE: tl.constexpr):
    """Round float32 to another dtype. The interpreter would cut bfloat16 off instead."""
    if IS_INTERPRETED and DTYPE == tl.bfloat16:  # noqa: SIM300
        bits = x.to(tl.uint32, bitcast=True)
        bits = bits + 0x7FFF + ((bits >> 16) & 1)
        x = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    return x.to(DTYPE)


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """``acc + a @ b`` in float32. The interpreter would multiply bfloat16 as integers."""
    if IS_INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)
