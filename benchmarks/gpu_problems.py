"""Attention problems without data, and the launches that they lead to."""

import torch

from adasparse.kernels.problem import AttentionProblem
from adasparse.kernels.triton import ahead, tuning
from adasparse.kernels.triton.attention import attention_backward, attention_forward

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
#: Names of the maps, and the float alpha that selects each; None is a tensor per head.
MAPS = {"softmax": 1.0, "1.5": 1.5, "2": 2.0, "general": None}


def problem(
    dim: int,
    dtype: torch.dtype,
    alpha: float | None,
    *,
    heads: int = 8,
    length: int = 4096,
    is_causal: bool = False,
) -> AttentionProblem:
    def tensor() -> torch.Tensor:
        return torch.empty(2, heads, length, dim, dtype=dtype, device="meta")

    if alpha is None:
        alphas = torch.empty(1, heads, 1, 1, dtype=torch.float64, device="meta")
    else:
        alphas = torch.full((1, 1, 1, 1), alpha, dtype=torch.float64)
    return AttentionProblem(
        query=tensor(), key=tensor(), value=tensor(), alpha=alphas, scale=0.1, is_causal=is_causal
    )


def launches(
    target: str, attention: AttentionProblem, tiles: tuning.Tiles | None = None
) -> list[ahead.Call]:
    """Launches of a forward and a backward, the gradient of a tensor alpha included."""
    needs = {"query", "key", "value"}
    if attention.alpha.device.type == "meta":
        needs.add("alpha")
    with ahead.recorded(target, tiles) as calls:
        out, saved = attention_forward(attention, keep=True)
        attention_backward(attention, saved, torch.empty_like(out), frozenset(needs))
    return calls
