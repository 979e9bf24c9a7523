"""Time long-context models with ASEntmax and NAPE next to softmax through PyTorch's attention.

    .venv/bin/python benchmarks/longcontext.py [--only train|evaluate] [--length N] [--json]

Two cases, both of 4 layers, width 256 and 8 heads: a step of training (forward, backward and
AdamW) on 2048 tokens, and the teacher-forced evaluation of one MQMTAR example of 65,536. Softmax is
timed with RoPE and without positions, which is the quickest that dense attention gets.

Models are new, so that scores are close to zero and sparse attention has most to look at, and
"trained": query and key projections drawn so that scores have a standard deviation of about 1.
Evaluation takes turns as training does, each model in a process of its own whose peak is reported.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import torch

from adasparse import diagnostics
from adasparse.bench.timing import best_times
from adasparse.longcontext import (
    TASKS,
    LongContextConfig,
    LongContextForCausalLM,
    count_correct,
)

MODELS = {
    "softmax rope": ("softmax", "rope"),
    "softmax nope": ("softmax", "nope"),
    "asentmax nape": ("asentmax", "nape"),
}
OURS = "asentmax nape"
TRAIN_BAR, EVALUATE_BAR, MEMORY_BAR = 1.3, 2.0, 8.0


def build(name: str, weights: str) -> LongContextForCausalLM:
    torch.manual_seed(0)
    attention, positions = MODELS[name]
    config = LongContextConfig(
        attention=attention,
        positions=positions,
        vocab_size=TASKS["mqmtar"].vocab_size,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
    )
    model = LongContextForCausalLM(config)
    if weights == "trained":
        for key, parameter in model.named_parameters():
            if key.endswith(("q_proj.weight", "k_proj.weight")):
                torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return model


def train(weights: str, length: int, repeats: int) -> dict[str, float]:
    """Milliseconds of a step of each model."""
    tokens = torch.randint(4, 260, (1, length))

    def step_of(name: str):
        model = build(name, weights).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step() -> None:
            optimizer.zero_grad()
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()

        return step

    times = best_times({name: step_of(name) for name in MODELS}, repeats=repeats)
    return {name: 1000 * seconds for name, seconds in times.items()}


def evaluate_once(name: str, weights: str, length: int, threads: int) -> tuple[float, float]:
    """Seconds, and the peak of the whole process in GiB."""
    torch.set_num_threads(threads)
    model = build(name, weights).eval()
    batch = TASKS["mqmtar"].batch(0, 1, length)
    count_correct(model, TASKS["mqmtar"].batch(0, 1, 64))
    start = time.perf_counter()
    count_correct(model, batch)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def evaluate(weights: str, length: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Best seconds and highest peak of each model."""
    spawn = multiprocessing.get_context("spawn")
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in MODELS}
    for _ in range(repeats):
        for name, found in results.items():
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                task = pool.submit(evaluate_once, name, weights, length, torch.get_num_threads())
                found.append(task.result())
            print(f"  {name}: {found[-1][0]:.1f} s", file=sys.stderr)
    return {
        name: (min(x for x, _ in found), max(x for _, x in found))
        for name, found in results.items()
    }


def report_train(weights: str, length: int, repeats: int) -> dict[str, object]:
    times = train(weights, length, repeats)
    dense = min(x for name, x in times.items() if name != OURS)
    row = {"case": "train", "weights": weights, "length": length, "ms": times}
    return {**row, "ratio": dense / times[OURS], "bar": TRAIN_BAR}


def report_evaluate(weights: str, length: int, repeats: int) -> dict[str, object]:
    found = evaluate(weights, length, repeats)
    dense = min(seconds for name, (seconds, _) in found.items() if name != OURS)
    return {
        "case": "evaluate",
        "weights": weights,
        "length": length,
        "ms": {name: 1000 * seconds for name, (seconds, _) in found.items()},
        "peak_gib": {name: peak for name, (_, peak) in found.items()},
        "ratio": dense / found[OURS][0],
        "bar": EVALUATE_BAR,
        "memory_bar_gib": MEMORY_BAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["train", "evaluate"])
    parser.add_argument("--weights", choices=["initial", "trained"])
    parser.add_argument("--length", type=int, help="in place of 2048 and 65536")
    parser.add_argument("--repeats", type=int, help="in place of 5 and 1")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for case, report, length, repeats in (
        ("train", report_train, 2048, 5),
        ("evaluate", report_evaluate, 65536, 1),
    ):
        if options.only not in (None, case):
            continue
        for weights in [options.weights] if options.weights else ["initial", "trained"]:
            print(f"{case}, {weights} weights", file=sys.stderr)
            rows.append(report(weights, options.length or length, options.repeats or repeats))
    if options.json:
        about = {
            "command": " ".join(["benchmarks/longcontext.py", *sys.argv[1:]]),
            "cpu": diagnostics.processor()["model"],
            "threads": options.threads,
        }
        print(json.dumps({**about, "rows": rows}, indent=2))
        return
    print(f"ms; {options.threads} threads")
    for row in rows:
        times = "  ".join(f"{name} {ms:8.0f}" for name, ms in row["ms"].items())
        print(f"{row['case']:9}{row['weights']:8} n={row['length']:<6} {times}  ", end="")
        print(f"{row['ratio']:.2f}x (bar {row['bar']}x)", end="")
        if "peak_gib" in row:
            print(f"  peak {row['peak_gib'][OURS]:.2f} GiB (bar {MEMORY_BAR:.0f})", end="")
        print()


if __name__ == "__main__":
    main()
