"""Keys as int8 codes with bounds of their error, for the screening of scores.

Codes are a help of the kernels, not an approximation: attention with codes gives the bits that
attention without them gives. See ``csrc/attention/quantize.h``.
"""

import contextlib
import math
import mmap
from typing import Any

import torch
from torch import Tensor

from adasparse.kernels.cpu import native
from adasparse.kernels.cpu.rows import type_of

#: Keys that are coded together.
PANEL = native.extension.CODE_KEYS if native.is_available() else 16
#: Numbers of a panel: scale, residual and norm.
_BOUNDS = 3
#: Kernels read the bounds of panels a vector at a time.
_VECTOR = 16
#: Bytes from which memory is asked for in large pages.
_LARGE = 2**22


def can_code(device: torch.device) -> bool:
    """Whether kernels of this device make use of codes."""
    return device.type == "cpu" and native.has_int8_products()


def empty_codes(batch: int, groups: int, num_keys: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Return room for the codes and bounds of keys ``(b, g, k, d)``.

    Returns:
        Codes ``(b, g, panels, bytes)`` and bounds ``(b, g, 3, panels and some more)``.
    """
    panels = -(-num_keys // PANEL)
    row = -(-panels // _VECTOR) * _VECTOR + _VECTOR
    size = PANEL * (-(-head_dim // 4) * 4)
    return (
        _empty_bytes(batch, groups, panels, size),
        torch.zeros(batch, groups, _BOUNDS, row),
    )


def _empty_bytes(*shape: int) -> Tensor:
    """Return uninitialized bytes, in large pages of memory where the system has them.

    Codes are read from the first to the last, as fast as memory allows: large pages, which take
    fewer look-ups of addresses, save an eighth of the time.
    """
    size = math.prod(shape)
    if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8).view(shape)


@native.raises_memory_error
def code_keys(key: Tensor, codes: Tensor, bounds: Tensor, *, first: int = 0) -> None:
    """Code keys ``(b, g, k, d)`` in place.

    Args:
        key: In float32 or half precision, with a contiguous last dimension.
        codes: From ``empty_codes`` for as many keys or more.
        bounds: Likewise.
        first: Key from whose panel on codes are computed; those before are kept.
    """
    native.check_available()
    batch, groups, n, d = key.shape
    if key.dtype == torch.float64 or (key.stride(3) != 1 and d > 1):
        raise ValueError(
            "key must be float32, bfloat16 or float16 with a contiguous last dimension; "
            f"got {key.dtype} and strides {key.stride()}."
        )
    native.extension.code_keys(
        type=type_of(key),
        batch=batch,
        groups=groups,
        first=first // PANEL * PANEL,
        n=n,
        d=d,
        key=key.data_ptr(),
        key_strides=key.stride(),
        threads=torch.get_num_threads(),
        **code_arguments(codes, bounds),
    )


def code_arguments(codes: Tensor, bounds: Tensor) -> dict[str, Any]:
    """Return codes and bounds as arguments of the extension."""
    for name, x, dtype in (("codes", codes, torch.uint8), ("bounds", bounds, torch.float32)):
        if x.dtype != dtype or x.stride(3) != 1:
            raise ValueError(
                f"{name} must be {dtype} with a contiguous last dimension; "
                f"got {x.dtype} and strides {x.stride()}."
            )
    return {
        "codes": codes.data_ptr(),
        "code_strides": codes.stride(),
        "code_bounds": bounds.data_ptr(),
        "code_bound_strides": bounds.stride(),
    }
