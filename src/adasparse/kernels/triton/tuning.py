"""Tile sizes, warps and pipeline stages of the attention kernels.

Chosen so that no default variant spills registers, from what the compiler reports for each target
(``benchmarks/gpu_compile.py`` makes the table); nobody has measured their speed. They depend on the
target, the padded head size and the dtype, never on a length, so a length compiles nothing anew.
All kernels of a problem share the blocks, since the bit mask is in those units.
"""

import os
from typing import NamedTuple

import torch


class Tiles(NamedTuple):
    """Blocks of queries and keys, and (warps, stages) of each kernel.

    Those named general are for the general map, which takes more registers.
    """

    block_m: int
    block_n: int
    threshold: tuple[int, int]
    threshold_general: tuple[int, int]
    output: tuple[int, int]
    softmax: tuple[int, int]
    query: tuple[int, int]
    query_general: tuple[int, int]
    key_value: tuple[int, int]
    steep: tuple[int, int]
    repair: tuple[int, int] = (8, 1)  # hardly ever goes further than its first lines


#: Where kernels are compiled for: the first of a family stands for the others.
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
_INTERPRETER = Tiles(64, 64, *[(4, 1)] * 8)

#: By target and padded head size, of half precision.
_HALF = {
    ("sm_80", 64): Tiles(
        64, 32, (4, 2), (4, 2), (4, 2), (4, 2), (8, 2), (4, 1), (4, 2), (4, 1), (8, 2)
    ),
    ("sm_90", 64): Tiles(64, 32, (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2)),
    ("sm_100", 64): Tiles(
        64, 32, (4, 2), (4, 2), (4, 2), (4, 2), (4, 1), (4, 1), (4, 2), (4, 1), (4, 1)
    ),
    ("gfx942", 64): Tiles(64, 32, (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2)),
    ("sm_80", 128): Tiles(64, 32, (8, 1), (8, 1), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 1)),
    ("sm_90", 128): Tiles(64, 32, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 2)),
    ("sm_100", 128): Tiles(64, 32, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 2)),
    ("gfx942", 128): Tiles(64, 32, (8, 2), (8, 2), (8, 2), (8, 2), (4, 2), (4, 2), (4, 1), (4, 2)),
    ("sm_80", 256): Tiles(32, 32, (4, 1), (4, 1), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (4, 2)),
    ("sm_90", 256): Tiles(32, 32, (4, 1), (4, 2), (8, 2), (8, 2), (8, 1), (8, 1), (8, 1), (4, 2)),
    ("sm_100", 256): Tiles(
        32, 32, (4, 2), (4, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 2), (8, 2)
    ),
    ("gfx942", 256): Tiles(32, 16, (4, 1), (4, 1), (4, 1), (4, 1), (4, 1), (4, 1), (4, 1), (4, 1)),
}
#: The same of float32, whose tiles take twice the memory and, by default, no tensor cores.
_FLOAT32 = {
    ("sm_80", 64): Tiles(32, 32, (8, 1), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (8, 2), (4, 2)),
    ("sm_90", 64): Tiles(32, 32, (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 1), (4, 2)),
    ("sm_100", 64): Tiles(32, 32, (8, 1), (8, 1), (4, 2), (4, 2), (4, 2), (8, 2), (4, 1), (8, 2)),
    ("gfx942", 64): Tiles(32, 32, (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2)),
    ("sm_80", 128): Tiles(32, 16, (8, 2), (8, 2), (8, 2), (8, 2), (4, 2), (4, 2), (8, 1), (4, 2)),
    ("sm_90", 128): Tiles(16, 16, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2)),
    ("sm_100", 128): Tiles(32, 16, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 2)),
    ("gfx942", 128): Tiles(32, 16, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2)),
    ("sm_80", 256): Tiles(
        16, 16, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 2), (4, 1)
    ),
    ("sm_90", 256): Tiles(16, 16, (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 2), (8, 1), (8, 2)),
    ("sm_100", 256): Tiles(16, 16, (8, 2), (8, 2), (8, 2), (8, 2), (4, 2), (4, 2), (8, 1), (8, 2)),
    ("gfx942", 256): Tiles(16, 16, (8, 2), (8, 2), (8, 2), (8, 2), (2, 2), (4, 2), (4, 2), (4, 2)),
}
#: The same of half precision where several options change every score, which takes registers.
_LOADED = {
    ("sm_80", 64): Tiles(32, 32, *[(8, 1)] * 8),
    ("sm_90", 64): Tiles(32, 32, *[(8, 1)] * 8),
    ("sm_100", 64): Tiles(32, 32, *[(8, 1)] * 8),
    ("sm_80", 128): Tiles(32, 32, *[(8, 1)] * 8),
    ("sm_90", 128): Tiles(32, 32, *[(8, 1)] * 8),
    ("sm_100", 128): Tiles(32, 32, *[(8, 1)] * 8),
    ("gfx942", 64): _HALF["gfx942", 64]._replace(key_value=(4, 1)),
    ("gfx942", 128): Tiles(32, 32, *[(4, 1)] * 8),
}


def target_of(device: torch.device) -> str:
    """Name of the target that stands for a device; ``"interpreter"`` for what that runs."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return "interpreter"
    if torch.version.hip is not None:
        return "gfx942"
    # Consumer cards of the Blackwell family (12.x) have the shared memory and the matrix
    # instructions of the Ampere family.
    major = torch.cuda.get_device_properties(device).major
    return {9: "sm_90", 10: "sm_100", 11: "sm_100"}.get(major, "sm_80")


def has_tf32(device: torch.device) -> bool:
    """Whether Triton multiplies in TF32 there; of AMD's GPUs it does on the MI300 alone."""
    if device.type != "cuda" or torch.version.hip is None:
        return True
    return torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx942")


def tiles_for(target: str, d: int, dtype: torch.dtype, *, num_options: int = 0) -> Tiles:
    """Tiles for the larger of the two padded head sizes, 256 at most.

    ``num_options`` counts the options that change every score or weight: a mask, ALiBi slopes,
    ``softcap`` and dropout.
    """
    if target == "interpreter":
        return _INTERPRETER
    key = (target, max(64, d))
    if dtype == torch.float32:
        return _FLOAT32[key]
    return _LOADED.get(key, _HALF[key]) if num_options > 2 else _HALF[key]
