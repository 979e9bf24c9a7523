"""Passes over the keys and blocks kept, by the Triton kernels on the scores of a trained model.

Runs a model that ``adasparse tasks train`` made, records what its attention gets, and counts in
the kernels under Triton's interpreter:

    TRITON_INTERPRET=1 python benchmarks/gpu_passes.py RUN [LENGTH]
"""

import json
import os
import sys
from dataclasses import replace
from typing import Any

import torch

from adasparse.functional.backends import BACKENDS
from adasparse.kernels import AttentionProblem, cpu
from adasparse.kernels.triton import attention_forward, tuning
from adasparse.longcontext.runs import load_task_run
from adasparse.longcontext.tasks import find_task


class Recorder:
    """The CPU's kernels, with a copy of every attention problem that passes."""

    def __init__(self) -> None:
        self.problems: list[AttentionProblem] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(cpu, name)

    def attention_forward(self, problem: AttentionProblem, *, keep: bool) -> Any:
        self.problems.append(problem)
        return cpu.attention_forward(problem, keep=keep)


def recorded_problems(run: str, length: int) -> list[AttentionProblem]:
    model, recipe = load_task_run(run)
    batch = find_task(recipe.task).batch(7, 1, length)
    recorder = Recorder()
    before = BACKENDS["cpu"]
    BACKENDS["cpu"] = replace(before, load=lambda: recorder)
    try:
        with torch.no_grad():
            model(**batch.model_inputs())
    finally:
        BACKENDS["cpu"] = before
    return recorder.problems


def count(problem: AttentionProblem) -> dict[str, Any]:
    """Passes and blocks of one head, worst and mean over the blocks of queries."""
    b, h, q, _ = problem.query.shape
    k = problem.key.shape[2]
    tiles = tuning.tiles_for("interpreter", 64, torch.float32)
    q_blocks, k_blocks = -(-q // tiles.block_m), -(-k // tiles.block_n)
    counts = torch.zeros(b * h * q_blocks, 2, dtype=torch.int32)
    _, saved = attention_forward(problem, keep=True, counts=counts)
    bits = (saved.words.unsqueeze(-1) >> torch.arange(32)) & 1
    visible = sum(
        min(-(-min(k, (n + 1) * tiles.block_m) // tiles.block_n), k_blocks)
        if problem.is_causal else k_blocks
        for n in range(q_blocks)
    )  # fmt: skip
    passes = counts.reshape(b * h, q_blocks, 2)
    return {
        "alpha": sorted({round(x, 3) for x in problem.alpha.flatten().tolist()})[:8],
        "keys": k,
        "dense passes": round(passes[..., 0].sum().item() / (b * h * visible), 2),
        "masked passes, mean": round(passes[..., 1].double().mean().item(), 2),
        "masked passes, most": passes[..., 1].max().item(),
        "blocks kept": round(bits.sum().item() / (b * h * visible), 3),
    }


def main() -> None:
    if os.environ.get("TRITON_INTERPRET") != "1" or len(sys.argv) < 2:
        sys.exit(__doc__)
    length = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    for layer, problem in enumerate(recorded_problems(sys.argv[1], length)):
        print(json.dumps({"layer": layer, **count(problem)}), flush=True)


if __name__ == "__main__":
    main()
