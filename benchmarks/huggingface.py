"""Time sparsified models of transformers next to themselves with attn_implementation="sdpa".

    .venv/bin/python benchmarks/huggingface.py [--repeats 5] [--json]

Models have random weights. Those of transformers' own initialization give scores close to zero,
where sparse attention has most to look at; "trained" draws query and key projections so that
scores have a standard deviation of 1, closer to what training leads to.
"""

import argparse
import copy
import json
import sys

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from adasparse import diagnostics
from adasparse.bench.timing import best_times
from adasparse.integrations.huggingface import SparsityConfig, inspect_heads, sparsify

VOCABULARY = 1000


def llama() -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=2048,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config), {"input_ids": torch.randint(0, VOCABULARY, (1, 2048))}


def bert() -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=4,
        num_attention_heads=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    lengths = torch.randint(128 // 3, 129, (16, 1))
    inputs = {
        "input_ids": torch.randint(0, VOCABULARY, (16, 128)),
        "attention_mask": (torch.arange(128) < lengths).long(),
    }
    return BertModel(config, add_pooling_layer=False), inputs


#: Name, how to build it, and how many times as fast as SDPA it is to be.
CASES = [("llama n=2048", llama, 1.3), ("bert 16 x 128 padded", bert, 0.95)]


def sharpen(model: PreTrainedModel) -> None:
    """Draw projections of queries and keys anew, for scores of standard deviation 1."""
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight", "query.weight", "key.weight")):
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)


def step(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> None:
    model.zero_grad(set_to_none=True)
    model(**inputs)[0].float().square().mean().backward()


def measure(build, weights: str, repeats: int) -> dict[str, float]:
    torch.manual_seed(0)
    dense, inputs = build()
    if weights == "trained":
        sharpen(dense)
    learned, fixed = copy.deepcopy(dense), copy.deepcopy(dense)
    sparsify(learned, SparsityConfig(init_alpha=1.5))
    sparsify(fixed, SparsityConfig(alpha="fixed", init_alpha=1.5))
    density = torch.stack([x.density for x in inspect_heads(learned, inputs).values()]).mean()
    models = {"sdpa": dense.train(), "learned": learned.train(), "fixed": fixed.train()}
    times = best_times(
        {name: (lambda model=model: step(model, inputs)) for name, model in models.items()},
        repeats=repeats,
    )
    return {
        "density": density.item(),
        **{f"{name} ms": 1000 * seconds for name, seconds in times.items()},
        "learned ratio": times["sdpa"] / times["learned"],
        "fixed ratio": times["sdpa"] / times["fixed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, build, bar in CASES:
        for weights in ("initial", "trained"):
            print(f"{name}, {weights} weights", file=sys.stderr)
            row = {"case": name, "weights": weights, "bar": bar}
            rows.append({**row, **measure(build, weights, options.repeats)})
    if options.json:
        about = {
            "command": " ".join(["benchmarks/huggingface.py", *sys.argv[1:]]),
            "cpu": diagnostics.processor()["model"],
            "isa": diagnostics.kernels()["isa"],
            "threads": torch.get_num_threads(),
        }
        print(json.dumps({**about, "rows": rows}, indent=2))
        return
    print(f"forward + backward, ms; {torch.get_num_threads()} threads")
    for row in rows:
        print(
            f"{row['case']:22}{row['weights']:9}density {row['density']:6.1%}"
            f"  sdpa {row['sdpa ms']:7.0f}  learned {row['learned ms']:7.0f}"
            f" ({row['learned ratio']:.2f}x)  fixed {row['fixed ms']:7.0f}"
            f" ({row['fixed ratio']:.2f}x)  bar {row['bar']}x"
        )


if __name__ == "__main__":
    main()
