"""Number of variants that Triton compiles over 15 lengths and 6 head counts, without a device.

python benchmarks/gpu_variants.py
"""

import collections
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from gpu_problems import (
    MAPS,
    in_pages,
    launches,
    packed,
    packed_with_every_option,
    problem,
    row_launches,
    with_every_option,
)

from adasparse.kernels.triton import ahead
from adasparse.kernels.triton.attention import attention_forward

RESULTS = Path(__file__).parent / "results" / "gpu" / "variants.json"
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 1000, 1024, 4096, 5000, 65536)
HEADS = (1, 2, 8, 12, 16, 32)
TARGET = "sm_90"


def attention_calls(alpha: float | None, heads: int, length: int) -> list[ahead.Call]:
    plain = problem(64, torch.bfloat16, alpha, heads=heads, length=length, is_causal=True)
    sets = {
        "": plain,
        "all options": with_every_option(plain),
        "packed": packed(plain),
        "packed, all options": packed_with_every_option(plain),
    }
    found = {name: launches(TARGET, attention) for name, attention in sets.items()}
    with ahead.recorded(TARGET) as found["pages"]:
        attention_forward(in_pages(plain), keep=False)
    return _named(found)


def decoding_calls(alpha: float | None, heads: int, length: int) -> list[ahead.Call]:
    plain = problem(64, torch.bfloat16, alpha, heads=heads, length=max(length, 512))
    one = replace(plain, query=plain.query[:, :, :1])
    sets = {
        "decoding": one,
        "decoding, packed": replace(packed(plain), query=one.query.transpose(0, 2), max_q=1),
        "decoding, pages": replace(in_pages(plain), query=one.query.transpose(0, 2), max_q=1),
    }
    found = {}
    for name, attention in sets.items():
        with ahead.recorded(TARGET) as found[name]:
            attention_forward(attention, keep=False)
    return _named(found)


def _named(found: dict[str, list[ahead.Call]]) -> list[ahead.Call]:
    for name, calls in found.items():
        for call in calls:
            call.constants["options"] = name
    return [call for calls in found.values() for call in calls]


def row_calls(alpha: float | None, heads: int, length: int) -> list[ahead.Call]:
    calls = row_launches(TARGET, torch.bfloat16, alpha, num_rows=heads, length=length)
    for call in calls:
        call.constants["options"] = "long rows" if length > 256 else "short rows"
    return calls


def count(make: object, maps: tuple[str, ...] = tuple(MAPS)) -> dict[str, int]:
    """Variants of each kernel, map and set of options."""
    seen: dict[str, set[object]] = collections.defaultdict(set)
    for name, heads, length in product(maps, HEADS, LENGTHS):
        if name == "general" and heads == 1 and make is not attention_calls:
            continue  # one alpha for all rows is a set of options of its own
        for call in make(MAPS[name], heads, length):
            options = call.constants.pop("options", "")
            repair = "repair" if call.constants.get("IS_REPAIR") else ""
            key = " ".join(x for x in (call.name, repair, name, options) if x)
            seen[key].add(call.specialization(TARGET))
    return {key: len(variants) for key, variants in sorted(seen.items())}


def main() -> None:
    found = {}
    for make in (attention_calls, decoding_calls, row_calls):
        found.update(count(make))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for key, variants in found.items():
        print(variants, key)


if __name__ == "__main__":
    main()
