"""Time attention in a packed batch next to the padded call and to a loop over its sequences.

    .venv/bin/python benchmarks/packed.py [--repeats 5] [--alpha 1.5] [--threads 2] [--json]

64 sequences of 16 to 1,024 tokens, 8 heads of 64, causal, forward and backward. The padded call
gets tensors that are padded already, and the lengths, so that it scores no padded keys; it pays for
padded queries.
"""

import argparse
import json
import sys
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from adasparse import __version__, diagnostics, entmax_attention, entmax_attention_varlen
from adasparse.bench.timing import best_times

HEADS, HEAD_DIM, SEQUENCES, SHORTEST, LONGEST = 8, 64, 64, 16, 1024


def lengths_of_batch() -> list[int]:
    """Lengths from the shortest to the longest, evenly, in random order."""
    lengths = torch.linspace(SHORTEST, LONGEST, SEQUENCES).int()
    order = torch.randperm(SEQUENCES, generator=torch.Generator().manual_seed(0))
    return lengths[order].tolist()  # type: ignore[no-any-return]


def packed(x: list[Tensor], lengths: list[int], alpha: float) -> Tensor:
    """One call for the packed batch."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    longest = max(lengths)
    return entmax_attention_varlen(
        *x, cu_seq_q=offsets, max_q=longest, max_k=longest, alpha=alpha, is_causal=True
    )


def padded(rows: list[Tensor], lengths: list[int], alpha: float) -> Tensor:
    """One call for tensors that are padded from the start."""
    return entmax_attention(*rows, alpha=alpha, is_causal=True, key_lengths=torch.tensor(lengths))


def looped(x: list[Tensor], lengths: list[int], alpha: float) -> Tensor:
    """One call for each sequence."""
    outputs = [
        entmax_attention(*(t.transpose(0, 1) for t in sequence), alpha=alpha, is_causal=True)
        for sequence in zip(*(t.split(lengths) for t in x), strict=True)
    ]
    return torch.cat(outputs, 1).transpose(0, 1)


def measure(alpha: float, repeats: int) -> dict[str, float]:
    """Return the best time of each way in milliseconds, forward and backward."""
    lengths = lengths_of_batch()
    generator = torch.Generator().manual_seed(1)
    x = [
        torch.randn(sum(lengths), HEADS, HEAD_DIM, generator=generator).requires_grad_()
        for _ in range(3)
    ]
    rows = [
        pad_sequence(t.detach().split(lengths), batch_first=True).transpose(1, 2).requires_grad_()
        for t in x
    ]
    ways = {
        "packed": (packed, x),
        "padded": (padded, rows),
        "loop": (looped, x),
    }
    grad = torch.randn(x[0].shape, generator=generator)
    padded_grad = pad_sequence(grad.split(lengths), batch_first=True).transpose(1, 2)
    outputs = {name: way(given, lengths, alpha) for name, (way, given) in ways.items()}
    tokens = [row[:, :n].transpose(0, 1) for n, row in zip(lengths, outputs["padded"], strict=True)]
    for other in (torch.cat(tokens), outputs["loop"]):
        torch.testing.assert_close(outputs["packed"], other, rtol=1e-4, atol=1e-5)

    def run(name: str) -> None:
        way, given = ways[name]
        output = way(given, lengths, alpha)
        torch.autograd.grad(output, given, padded_grad if given is rows else grad)

    times = best_times({name: partial(run, name) for name in ways}, repeats=repeats)
    return {name: 1000 * seconds for name, seconds in times.items()}


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=1.5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    times = measure(arguments.alpha, arguments.repeats)
    ratios = {name: x / times["packed"] for name, x in times.items()}
    if arguments.json:
        about = {
            "command": " ".join(["benchmarks/packed.py", *sys.argv[1:]]),
            "cpu": diagnostics.processor()["model"],
            "isa": diagnostics.kernels()["isa"],
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "version": __version__,
            "alpha": arguments.alpha,
        }
        print(json.dumps({**about, "milliseconds": times, "ratio": ratios}, indent=2))
        return
    for name, x in times.items():
        print(f"{name:24} {x:9.1f} ms   {ratios[name]:5.2f} x packed")


if __name__ == "__main__":
    main()
