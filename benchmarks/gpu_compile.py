"""Compile every default variant ahead of time, and tabulate the resources that it takes.

No GPU is needed. Results are kept in ``results/gpu/compile.json`` with a hash of what each kernel
was compiled from, so a run compiles what has changed since the last one, and an interrupted run
continues. About 590 compilations of 1 to 5 seconds, on one core:

    python benchmarks/gpu_compile.py            # all
    python benchmarks/gpu_compile.py float32    # one dtype
    python benchmarks/gpu_compile.py --table    # only print the table in Markdown
"""

import json
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from gpu_problems import DTYPES, MAPS, launches, problem, with_every_option

from adasparse.kernels.triton import ahead, tuning

RESULTS = Path(__file__).parent / "results" / "gpu" / "compile.json"
DIMS = (64, 128, 256)
KERNELS = ("threshold", "output", "softmax", "query", "key_value")
#: Rows of the general map with every option, and the head sizes that they are compiled for.
OPTIONS = "general, all options"
OPTION_DIMS = (128, 64)


def variants(dtypes: list[str]) -> Iterator[tuple[str, str, ahead.Call]]:
    """Key, target and launch of each row of the table."""
    for dtype, dim, name, target in product(dtypes, DIMS, MAPS, tuning.TARGETS):
        for call in launches(target, problem(dim, DTYPES[dtype], MAPS[name])):
            kernel = call.name.removesuffix("_kernel")
            # A tensor alpha has the softmax kernel of alpha = 1.
            if kernel in KERNELS and (name, kernel) != ("general", "softmax"):
                yield f"{target} {dtype} {dim} {name} {kernel}", target, call
    if "bfloat16" in dtypes:
        yield from variants_with_every_option()


def variants_with_every_option() -> Iterator[tuple[str, str, ahead.Call]]:
    """The same for every option at once, with alpha and all gradients, in bfloat16."""
    for dim, target in product(OPTION_DIMS, tuning.TARGETS):
        attention = with_every_option(problem(dim, DTYPES["bfloat16"], None))
        for call in launches(target, attention):
            kernel = call.name.removesuffix("_kernel")
            if kernel in (*KERNELS, "mask"):
                yield f"{target} bfloat16 {dim} {OPTIONS} {kernel}", target, call


def compile_all(dtypes: list[str]) -> dict[str, dict[str, object]]:
    """Rows of the table; those that were never compiled come first."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for key, target, call in sorted(variants(dtypes), key=lambda x: x[0] in found):
        fingerprint = call.fingerprint(target)
        if found.get(key, {}).get("hash") == fingerprint:
            continue
        flags = call.constants["FLAGS"]
        row = {"blocks": [flags.block_m, flags.block_n], "warps": call.warps}
        row |= {"stages": call.stages, "hash": fingerprint}
        start = time.process_time()
        try:
            row.update(vars(ahead.resources(call.compile(target))))
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        seconds = time.process_time() - start
        print(key, row, f"{seconds:.1f} s", file=sys.stderr, flush=True)
        found[key] = row
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(
            "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
            + "\n}\n"
        )  # fmt: skip
    return found


def table(found: dict[str, dict[str, object]]) -> str:
    """Registers / spills / KiB of shared memory, one column for each target."""
    lines = [
        "| dtype | d | blocks | map | kernel | " + " | ".join(tuning.TARGETS) + " |",
        "|---" * (5 + len(tuning.TARGETS)) + "|",
    ]
    for dtype, dim, name, kernel in product(DTYPES, DIMS, (*MAPS, OPTIONS), (*KERNELS, "mask")):
        rows = [found.get(f"{target} {dtype} {dim} {name} {kernel}") for target in tuning.TARGETS]
        if not any(rows):
            continue
        cells = [
            "-" if row is None else "fails" if "error" in row
            else f"{row['registers']} / {row['spills']} / {row['shared'] / 1024:.0f}K"
            for row in rows
        ]  # fmt: skip
        blocks = ", ".join(dict.fromkeys("×".join(map(str, row["blocks"])) for row in rows if row))
        lines.append(f"| {dtype} | {dim} | {blocks} | {name} | {kernel} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["--table"]:
        print(table(json.loads(RESULTS.read_text())))
        return
    found = compile_all(sys.argv[1:] or list(DTYPES))
    spilled = sorted(key for key, row in found.items() if row.get("spills") or "error" in row)
    large = [
        k for k, row in found.items() if row.get("shared", 0) > ahead.SHARED_LIMITS[k.split()[0]]
    ]
    print(f"{len(found)} variants; spilling or failing: {spilled}; too much shared memory: {large}")


if __name__ == "__main__":
    main()
