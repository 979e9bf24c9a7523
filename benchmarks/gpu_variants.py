"""Number of variants that Triton compiles over 15 lengths and 6 head counts, without a device.

python benchmarks/gpu_variants.py
"""

import collections
import json
from itertools import product
from pathlib import Path

import torch
from gpu_problems import MAPS, launches, problem

from adasparse.kernels.problem import AttentionProblem, LossProblem
from adasparse.kernels.triton import ahead
from adasparse.kernels.triton.attention import attention_backward, attention_forward
from adasparse.kernels.triton.decode import attention_paged
from adasparse.kernels.triton.losses import loss_backward, loss_forward
from adasparse.kernels.triton.rows import entmax_backward, entmax_forward

RESULTS = Path(__file__).parent / "results" / "gpu" / "variants.json"
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 1000, 1024, 4096, 5000, 65536)
HEADS = (1, 2, 8, 12, 16, 32)
TARGET = "sm_90"


def attention_calls(alpha: float | None, heads: int, length: int) -> list[ahead.Call]:
    plain = problem(64, torch.bfloat16, alpha, heads=heads, length=length, is_causal=True)
    calls = launches(TARGET, plain)
    # The same with every option, a broadcast mask with a gradient among them.
    mask = torch.empty(2, 1, length, length, device="meta")
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    slopes = torch.empty(heads, dtype=torch.float64, device="meta")
    full = AttentionProblem(
        **{**vars(plain), "mask": mask, "key_lengths": lengths, "slopes": slopes,
           "seed": torch.tensor(1), "dropout_p": 0.1}
    )  # fmt: skip
    needs = frozenset({"query", "key", "value", "mask", "slopes"})
    with ahead.recorded(TARGET) as more:
        out, saved = attention_forward(full, keep=True)
        attention_backward(full, saved, torch.empty_like(out), needs)
    for call in more:
        call.constants["options"] = "all options"
    return [*calls, *more]


def decoding_calls(alpha: float | None, heads: int, length: int) -> list[ahead.Call]:
    plain = problem(64, torch.bfloat16, alpha, heads=heads, length=max(length, 512))
    one = AttentionProblem(**{**vars(plain), "query": plain.query[:, :, :1]})
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    page = torch.empty(40, 64, heads, 64, dtype=torch.bfloat16, device="meta")
    paged = AttentionProblem(**{**vars(one), "key": page, "value": page, "key_lengths": lengths})
    pages = torch.empty(2, max(length, 8), dtype=torch.int32, device="meta")
    with ahead.recorded(TARGET) as calls:
        attention_forward(one, keep=False)
        num_plain = len(calls)
        attention_paged(paged, pages)
    for n, call in enumerate(calls):
        call.constants["options"] = "decoding" if n < num_plain else "decoding, pages"
    return calls


def row_calls(alpha: float | None, heads: int, length: int) -> list[ahead.Call]:
    scores = torch.empty(heads, length, dtype=torch.bfloat16, device="meta")
    alphas = torch.empty(heads, dtype=torch.float64, device="meta")
    if alpha is not None:
        alphas = torch.tensor(alpha, dtype=torch.float64)
    index = torch.empty(heads, dtype=torch.int64, device="meta")
    losses = LossProblem(scores=scores, alpha=alphas, index=index)
    is_tensor = alpha is None
    with ahead.recorded(TARGET) as calls:
        weights = entmax_forward(scores, alphas)
        entmax_backward(weights, weights, alphas, with_alpha=is_tensor)
        loss, saved = loss_forward(losses)
        loss_backward(losses, saved, loss, with_alpha=is_tensor)
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
            key = " ".join(x for x in (call.name, name, options) if x)
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
