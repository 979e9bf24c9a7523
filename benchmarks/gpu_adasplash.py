"""Equality with AdaSplash under Triton's interpreter, outputs and gradients.

AdaSplash is not a dependency. Install it without its own, in a folder of its own:

    pip install --no-deps --target /tmp/adasplash adasplash==0.2.2
    TRITON_INTERPRET=1 PYTHONPATH=/tmp/adasplash python benchmarks/gpu_adasplash.py
"""

import os
import sys

import torch

from adasparse.kernels.problem import AttentionProblem
from adasparse.kernels.triton import attention_backward, attention_forward

#: Largest difference, relative to the largest number; AdaSplash scales queries before the product.
TOLERANCE = 2e-5


def compare(alpha: float, length: int, dim: int, is_causal: bool) -> dict[str, float]:
    from adasplash import adasplash_no_block_mask

    generator = torch.Generator().manual_seed(length)
    shape = (1, 2, length, dim)
    query, key, value, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (2 * query, key, value)]
    # Their kernel takes the scale of 1 / sqrt(d) itself.
    theirs = adasplash_no_block_mask(*leaves, alpha=alpha, is_causal=is_causal, niter=20)
    theirs.backward(grad)
    problem = AttentionProblem(
        query=2 * query,
        key=key,
        value=value,
        alpha=torch.full((1, 1, 1, 1), alpha, dtype=torch.float64),
        scale=dim**-0.5,
        is_causal=is_causal,
    )
    output, saved = attention_forward(problem, keep=True)
    ours = attention_backward(problem, saved, grad, frozenset({"query", "key", "value"}))
    pairs = {"output": (output, theirs.detach())}
    for name, leaf in zip(("query", "key", "value"), leaves, strict=True):
        pairs[name] = (getattr(ours, name), leaf.grad)
    return {name: ((a - b).abs().max() / b.abs().max()).item() for name, (a, b) in pairs.items()}


def main() -> None:
    if os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("Set TRITON_INTERPRET=1; see the head of this file.")
    worst = 0.0
    for alpha in (1.5, 1.333, 2.0):
        for is_causal in (False, True):
            found = compare(alpha, 128, 32, is_causal)
            worst = max(worst, *found.values())
            text = ", ".join(f"{name} {error:.1e}" for name, error in found.items())
            print(f"alpha {alpha}, causal {is_causal}: {text}", flush=True)
    sys.exit(0 if worst <= TOLERANCE else f"differs by {worst:.1e}, more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
