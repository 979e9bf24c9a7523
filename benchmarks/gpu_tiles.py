"""Search for tiles without register spills, for every target, head size and dtype.

The first blocks in the list below for which each kernel has warps and stages without a spill are
the choice, to be written into ``kernels/triton/tuning.py``. Takes about half an hour of one core.
An interrupted search continues from ``results/gpu/tiles.json``: remove it to search anew.

    python benchmarks/gpu_tiles.py [target ...]
"""

import json
import sys
from itertools import product
from pathlib import Path

import torch
from gpu_problems import launches, problem

from adasparse.kernels.triton import ahead, tuning

RESULTS = Path(__file__).parent / "results" / "gpu" / "tiles.json"
KERNELS = ("threshold", "output", "softmax", "repair", "steep", "query", "key_value")
#: Larger blocks first: they read keys and values less often.
BLOCKS = {64: [(64, 32)], 128: [(64, 32), (32, 32)], 256: [(32, 32), (32, 16), (16, 16)]}
FLOAT32_BLOCKS = {64: [(32, 32), (16, 16)], 128: [(32, 16), (16, 16)], 256: [(16, 16)]}
WARPS_AND_STAGES = [(4, 2), (4, 1), (8, 2), (8, 1)]


def find(target: str, dim: int, dtype: torch.dtype) -> dict[str, object] | None:
    blocks = (FLOAT32_BLOCKS if dtype == torch.float32 else BLOCKS)[dim]
    pairs = WARPS_AND_STAGES if dim == 64 else [*WARPS_AND_STAGES[2:], *WARPS_AND_STAGES[:2]]
    least: dict[str, object] | None = None
    for block in blocks:
        chosen: dict[str, object] = {"blocks": block, "spills": {}}
        for name in KERNELS:
            best = None
            for pair in pairs:
                tiles = tuning.Tiles(*block, *[pair] * 9)
                calls = launches(target, problem(dim, dtype, None), tiles)
                call = next(c for c in calls if c.name == f"{name}_kernel")
                try:
                    used = ahead.resources(call.compile(target))
                except Exception as error:
                    print(name, target, dim, dtype, block, pair, repr(error)[:200], flush=True)
                    continue
                print(name, target, dim, dtype, block, pair, used, flush=True)
                fits = used.shared <= ahead.SHARED_LIMITS[target]
                if fits and (best is None or used.spills < best[0]):
                    best = (used.spills, pair)
                if fits and used.spills == 0:
                    break
            chosen[name] = best and best[1]
            chosen["spills"][name] = best and best[0]
        if all(n == 0 for n in chosen["spills"].values()):
            return chosen
        if least is None or sum(n or 0 for n in chosen["spills"].values()) < sum(
            n or 0 for n in least["spills"].values()
        ):
            least = chosen
    return least


def main() -> None:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for dtype, dim in product((torch.bfloat16, torch.float32), (64, 128, 256)):
        for target in sys.argv[1:] or tuning.TARGETS:
            key = f"{target} {dim} {str(dtype).removeprefix('torch.')}"
            if key not in found:
                found[key] = find(target, dim, dtype)
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
