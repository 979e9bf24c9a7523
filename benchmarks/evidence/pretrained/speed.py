"""Speed of reading and of decoding, softmax and sparse models by turns."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


@torch.no_grad()
def compare_speed(
    models: Mapping[str, PreTrainedModel],
    tokens: Tensor,
    lengths: Sequence[int],
    *,
    decoded: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """Return the seconds of reading a prompt and of decoding after it, at every length.

    Models take turns, so that whatever disturbs the machine meets all of them, and the best turn of
    each counts.

    Args:
        models: Models by name, in evaluation mode.
        tokens: Text ``(n,)``, at least as long as the longest prompt.
        lengths: Tokens of the prompts.
        decoded: Tokens to decode greedily after each prompt.
        rounds: Turns of each model.
    """
    rows = []
    for length in lengths:
        prompt = tokens[None, :length]
        found: dict[str, dict[str, float]] = {name: {} for name in models}
        for _ in range(rounds):
            for name, model in models.items():
                for what, seconds in _turn(model, prompt, decoded).items():
                    found[name][what] = min(seconds, found[name].get(what, float("inf")))
        rows.append({"length": length, "decoded": decoded, "seconds": found})
    return rows


def _turn(model: PreTrainedModel, prompt: Tensor, decoded: int) -> dict[str, float]:
    output, prefill = _timed(lambda: model(prompt, use_cache=True, logits_to_keep=1))

    def decode() -> None:
        cache, token = output.past_key_values, output.logits[:, -1:].argmax(-1)
        for _ in range(decoded):
            step = model(token, past_key_values=cache, use_cache=True)
            token = step.logits[:, -1:].argmax(-1)

    _, decoding = _timed(decode)
    return {"prefill": prefill, "decoding": decoding}


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start
