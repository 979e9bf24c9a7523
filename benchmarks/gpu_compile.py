"""Compile every default variant ahead of time, and tabulate the resources that it takes.

No GPU is needed. Results are kept in ``results/gpu/compile.json`` with a hash of what each kernel
was compiled from, so a run compiles what has changed since the last one, and an interrupted run
continues. About 1,380 compilations of 1 to 5 seconds, on one core:

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

from gpu_problems import (
    DTYPES,
    MAPS,
    decoding_launches,
    launches,
    most_rows,
    problem,
    row_launches,
    with_every_option,
)

from adasparse.kernels.triton import ahead, tuning

RESULTS = Path(__file__).parent / "results" / "gpu" / "compile.json"
DIMS = (64, 128, 256)
KERNELS = ("threshold", "output", "softmax", "repair", "steep", "query", "key_value")
#: Rows of the general map with every option, and the head sizes that they are compiled for.
OPTIONS = "general, all options"
OPTION_DIMS = (128, 64)
#: Rows of decoding: the smallest tile of queries, and the largest of a head size and dtype.
DECODING = ("decoding, few rows", "decoding, most rows")
DECODING_KERNELS = ("scores", "values", "repair")
#: The two tiles of rows, and a length that takes each.
ROWS = {"short rows": 200, "long rows": 32000}
ROW_KERNELS = ("entmax", "entmax_backward", "loss", "loss_backward")
Variants = Iterator[tuple[str, str, ahead.Call]]


def variants(dtypes: list[str]) -> Variants:
    """Key, target and launch of each row of the tables."""
    yield from attention_variants(dtypes)
    yield from decoding_variants(dtypes)
    yield from row_variants(dtypes)


def attention_variants(dtypes: list[str]) -> Variants:
    """The same for attention, forward and backward."""
    for dtype, dim, name, target in product(dtypes, DIMS, MAPS, tuning.TARGETS):
        for call in launches(target, problem(dim, DTYPES[dtype], MAPS[name])):
            kernel = call.name.removesuffix("_kernel")
            # A tensor alpha has the softmax kernel of alpha = 1.
            if kernel in KERNELS and (name, kernel) != ("general", "softmax"):
                yield f"{target} {dtype} {dim} {name} {kernel}", target, call
    if "bfloat16" in dtypes:
        yield from variants_with_every_option()


def variants_with_every_option() -> Variants:
    """The same for every option at once, with alpha and all gradients, in bfloat16."""
    for dim, target in product(OPTION_DIMS, tuning.TARGETS):
        attention = with_every_option(problem(dim, DTYPES["bfloat16"], None))
        for call in launches(target, attention):
            kernel = call.name.removesuffix("_kernel")
            if kernel in (*KERNELS, "mask"):
                yield f"{target} bfloat16 {dim} {OPTIONS} {kernel}", target, call


def decoding_variants(dtypes: list[str]) -> Variants:
    """The same for decoding, whose rows ``row_variants`` has in float32."""
    for dtype, dim, target in product(dtypes, DIMS, tuning.TARGETS):
        for name, rows in zip(DECODING, (4, most_rows(dim, DTYPES[dtype])), strict=True):
            for call in decoding_launches(target, dim, DTYPES[dtype], rows):
                kernel = call.name.removesuffix("_kernel")
                if call.constants.get("IS_REPAIR"):
                    kernel = "repair"
                if kernel in DECODING_KERNELS:
                    yield f"{target} {dtype} {dim} {name} {kernel}", target, call


def row_variants(dtypes: list[str]) -> Variants:
    """The same for ``entmax`` and its loss."""
    for dtype, name, (rows, length), target in product(dtypes, MAPS, ROWS.items(), tuning.TARGETS):
        calls = row_launches(target, DTYPES[dtype], MAPS[name], num_rows=64, length=length)
        for call in calls:
            yield (
                f"{target} {dtype} {rows} {name} {call.name.removesuffix('_kernel')}",
                target,
                call,
            )


def settings(call: ahead.Call) -> dict[str, object]:
    """Choice of ``tuning`` for a launch: rows and keys of a tile, warps and stages."""
    constants = call.constants
    if "BLOCK" in constants:
        blocks = [constants["ROWS"], constants["BLOCK"]]
    else:
        flags = constants["FLAGS"]
        blocks = [constants.get("ROWS", flags.block_m), flags.block_n]
    return {"blocks": blocks, "warps": call.warps, "stages": call.stages}


def compile_all(dtypes: list[str]) -> dict[str, dict[str, object]]:
    """Rows of the table; those that were never compiled come first."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for key, target, call in sorted(variants(dtypes), key=lambda x: x[0] in found):
        fingerprint = call.fingerprint(target)
        if found.get(key, {}).get("hash") == fingerprint:
            continue
        row = {**settings(call), "hash": fingerprint}
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
    """Table of attention in Markdown."""
    keys = product(DTYPES, DIMS, (*MAPS, OPTIONS), (*KERNELS, "mask"))
    return _table(found, ("dtype", "d", "map", "kernel"), keys)


def decoding_table(found: dict[str, dict[str, object]]) -> str:
    """Table of decoding in Markdown."""
    keys = product(DTYPES, DIMS, DECODING, DECODING_KERNELS)
    return _table(found, ("dtype", "d", "step", "kernel"), keys)


def row_table(found: dict[str, dict[str, object]]) -> str:
    """Table of ``entmax`` and its loss in Markdown."""
    return _table(
        found, ("dtype", "rows", "map", "kernel"), product(DTYPES, ROWS, MAPS, ROW_KERNELS)
    )


def _table(
    found: dict[str, dict[str, object]], heads: tuple[str, ...], keys: Iterator[tuple[object, ...]]
) -> str:
    """Registers / spills / KiB of shared memory, one column for each target."""
    lines = [
        "| " + " | ".join((*heads, "blocks", *tuning.TARGETS)) + " |",
        "|---" * (len(heads) + 1 + len(tuning.TARGETS)) + "|",
    ]
    for key in keys:
        names = list(map(str, key))
        rows = [found.get(" ".join([target, *names])) for target in tuning.TARGETS]
        if not any(rows):
            continue
        cells = [
            "-" if row is None else "fails" if "error" in row
            else f"{row['registers']} / {row['spills']} / {row['shared'] / 1024:.0f}K"
            for row in rows
        ]  # fmt: skip
        blocks = ", ".join(dict.fromkeys("×".join(map(str, row["blocks"])) for row in rows if row))
        lines.append("| " + " | ".join((*names, blocks, *cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["--table"]:
        found = json.loads(RESULTS.read_text())
        print(table(found), decoding_table(found), row_table(found), sep="\n\n")
        return
    found = compile_all(sys.argv[1:] or list(DTYPES))
    spilled = sorted(key for key, row in found.items() if row.get("spills") or "error" in row)
    large = [
        k for k, row in found.items() if row.get("shared", 0) > ahead.SHARED_LIMITS[k.split()[0]]
    ]
    print(f"{len(found)} variants; spilling or failing: {spilled}; too much shared memory: {large}")


if __name__ == "__main__":
    main()
