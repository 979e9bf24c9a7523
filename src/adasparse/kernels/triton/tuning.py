"""Tile sizes, warps and pipeline stages of the attention kernels.

Chosen so that no default variant spills registers, from what the compiler reports for each target
(``benchmarks/gpu_compile.py`` makes the table); nobody has measured their speed. They depend on the
target, the padded head size and the dtype, never on a length, so a length compiles nothing anew.
All kernels of a problem share the blocks, since the bit mask is in those units.
"""

from typing import NamedTuple

import torch


class Tiles(NamedTuple):
    """Blocks of queries and keys, and (warps, stages) of each kernel."""

    block_m: int
    block_n: int
    threshold: tuple[int, int]
    output: tuple[int, int]
    softmax: tuple[int, int]
    query: tuple[int, int]
    key_value: tuple[int, int]


#: Where kernels are compiled for: the first of a family stands for the others.
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
_EVERY = (4, 1)
_INTERPRETER = Tiles(64, 64, _EVERY, _EVERY, _EVERY, _EVERY, _EVERY)


def target_of(device: torch.device) -> str:
    """Name of the target that stands for a device; ``"interpreter"`` for the CPU."""
    if device.type != "cuda":
        return "interpreter"
    if torch.version.hip is not None:
        return "gfx942"
    major, _ = torch.cuda.get_device_capability(device)
    return "sm_80" if major < 9 else "sm_90" if major == 9 else "sm_100"


def tiles_for(target: str, d: int, dtype: torch.dtype) -> Tiles:
    """Tiles for the larger of the two padded head sizes."""
    if target == "interpreter":
        return _INTERPRETER
    size = max(64, d)
    warps = 4 if size == 64 else 8
    every = (warps, 2)
    return Tiles(64, 32, every, every, every, every, every)
