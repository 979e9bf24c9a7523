"""Passes over the keys and blocks kept, by the Triton kernels on the scores of a trained model.

Runs a model once, records what its attention gets, and counts in the kernels under Triton's
interpreter:

    TRITON_INTERPRET=1 python benchmarks/gpu_passes.py RUN [LENGTH]               # of tasks train
    TRITON_INTERPRET=1 python benchmarks/gpu_passes.py MODEL LENGTH TOKENS.pt 7   # of transformers

A model of transformers reads the first LENGTH of the tokens in a file, as ``torch.save`` writes
them; the evidence runner leaves such files beside pretrained models. The last number is a step:
every seventh layer, here.

Heads that attend nearby by ALiBi are calls of their own with a window, and are left out. The counts
are printed and kept in ``results/gpu/passes.json`` under the name of the task or model, from where
``gpu_docs.py`` takes its table. Those published are of runs of ``benchmarks.evidence``, experiment
``sizes``.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

import adasparse.integrations.huggingface  # noqa: F401, lets from_pretrained load sparse models
from adasparse.functional.backends import BACKENDS
from adasparse.kernels import AttentionProblem, cpu
from adasparse.kernels.triton import attention_forward, tuning
from adasparse.longcontext.runs import load_task_run
from adasparse.longcontext.tasks import find_task

RESULTS = Path(__file__).parent / "results" / "gpu" / "passes.json"


class Recorder:
    """The CPU's kernels, with a copy of every attention problem that passes."""

    def __init__(self) -> None:
        self.problems: list[AttentionProblem] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(cpu, name)

    def attention_forward(self, problem: AttentionProblem, *, keep: bool) -> Any:
        self.problems.append(problem)
        return cpu.attention_forward(problem, keep=keep)


#: A name for the table, a model, and what it reads.
Subject = tuple[str, PreTrainedModel, dict[str, Tensor]]


def task_model(run: str, length: int) -> Subject:
    """A run of a task, and an example of this length."""
    model, recipe = load_task_run(run)
    return recipe.task, model, find_task(recipe.task).batch(7, 1, length).model_inputs()


def text_model(folder: str, length: int, tokens: str) -> Subject:
    """A sparse model of transformers, and a text of this length."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    text = torch.load(tokens, weights_only=True)[None, :length]
    return Path(folder).name, model, {"input_ids": text}


def recorded_problems(model: PreTrainedModel, inputs: dict[str, Tensor]) -> list[AttentionProblem]:
    recorder = Recorder()
    before = BACKENDS["cpu"]
    BACKENDS["cpu"] = replace(before, load=lambda: recorder)
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        BACKENDS["cpu"] = before
    return recorder.problems


def count(problem: AttentionProblem) -> dict[str, Any]:
    """Passes and blocks of all heads, worst and mean over the blocks of queries."""
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
    folder, *rest = sys.argv[1:]
    length = int(rest[0]) if rest else 256
    step = int(rest[2]) if rest[2:] else 1
    found = text_model(folder, length, rest[1]) if rest[1:] else task_model(folder, length)
    name, model, inputs = found
    everywhere = [x for x in recorded_problems(model, inputs) if x.window_left is None]
    layers = []
    for layer, problem in [*enumerate(everywhere)][::step]:
        layers.append({"layer": layer, **count(problem)})
        print(json.dumps(layers[-1]), flush=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = layers
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
