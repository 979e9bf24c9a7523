"""Instructions of the inner loops, one tile of scores each, from the machine code.

python benchmarks/gpu_instructions.py            # compile, and write results/gpu
python benchmarks/gpu_instructions.py --table    # only print the table in Markdown
"""

import json
import sys
from pathlib import Path

from gpu_problems import DTYPES, MAPS, launches, problem

from adasparse.kernels.triton import ahead

RESULTS = Path(__file__).parent / "results" / "gpu" / "instructions.json"
TARGETS = ("sm_80", "sm_90")
#: Loops with products in the order of the code; every second one handles the edge of visibility.
LOOPS = {
    "threshold": ("pass 1", "pass 1, edge", "pass 2", "pass 2, edge", "masked", "masked, edge"),
    "output": ("output", "output, edge"),
    "softmax": ("softmax", "softmax, edge"),
    "query": ("query", "query, edge"),
    "key_value": ("key and value", "key and value, edge"),
}
GROUPS = {
    "products": ("HMMA", "HGMMA", "WGMMA"),
    "float32": ("FFMA", "FADD", "FMUL", "FFMA32I"),
    "min, max, select": ("FMNMX", "FSEL", "SEL", "FSETP"),
    "exp, log": ("MUFU",),
    "barriers": ("BAR",),
}


def count(target: str, name: str, dim: int = 64) -> dict[str, dict[str, int]]:
    found = {}
    for call in launches(target, problem(dim, DTYPES["bfloat16"], MAPS[name])):
        kernel = call.name.removesuffix("_kernel")
        if kernel not in LOOPS or (name, kernel) == ("general", "softmax"):
            continue
        loops = [
            loop for loop in ahead.inner_loops(call.compile(target))
            if any(op in loop for op in GROUPS["products"])
        ]  # fmt: skip
        if len(loops) != len(LOOPS[kernel]):
            print(f"{target} {name} {kernel}: {len(loops)} loops with products", file=sys.stderr)
            continue
        flags = call.constants["FLAGS"]
        for label, loop in zip(LOOPS[kernel], loops, strict=True):
            row = {"all": sum(loop.values()), "scores of a thread": flags.block_m * flags.block_n
                   // (32 * call.warps)}  # fmt: skip
            for group, opcodes in GROUPS.items():
                row[group] = sum(n for op, n in loop.items() if op.split(".")[0] in opcodes)
            found[f"{label}, {name}" if kernel != "softmax" else label] = row
            print(target, label, name, row, file=sys.stderr, flush=True)
    return found


def table(found: dict[str, dict[str, dict[str, int]]]) -> str:
    columns = ("all", *GROUPS)
    lines = [
        "| target | loop, map | " + " | ".join(columns) + " | against softmax |",
        "|---" * (3 + len(columns)) + "|",
    ]
    for target, rows in found.items():
        base = rows["softmax"]["all"] / rows["softmax"]["scores of a thread"]
        for label, row in rows.items():
            if "edge" in label:
                continue
            ratio = row["all"] / row["scores of a thread"] / base
            cells = " | ".join(str(row[name]) for name in columns)
            lines.append(f"| {target} | {label} | {cells} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] != ["--table"]:
        found = {}
        for target in TARGETS:
            found[target] = {}
            for name in MAPS:
                found[target].update(count(target, name))
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
