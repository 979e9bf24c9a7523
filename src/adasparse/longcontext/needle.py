"""A sentence hidden in a long text, and whether a model remembers it."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from adasparse.longcontext.metrics import wilson_interval
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.perplexity import obstacle
from adasparse.longcontext.text import Tokens, encode

QUESTION = "\nThe secret number of {name} is"
TEST_NAMES = ("Ada", "Emma", "Henry", "John", "Lucy", "Mary", "Robert", "Tom")
DIGITS = 5


def hide_needle(
    tokenizer: PreTrainedTokenizerFast, text: Tokens, length: int, *, depth: float, seed: str
) -> tuple[Tokens, int]:
    """Return a window of ``length`` tokens with a needle in it, and how many the key has.

    The window is text with a sentence that states a random key; it ends with the beginning of the
    same sentence and the key again.

    Args:
        tokenizer: Tokenizer of the text.
        text: ``(n,)``, at least ``length``; where the window begins in it is random.
        length: Length of the whole window.
        depth: Where the sentence is: 0 at the beginning, 1 right before the question.
        seed: Seed of the key and the text.
    """
    rng = random.Random(seed)
    name = rng.choice(TEST_NAMES)
    key = "".join(rng.choice("0123456789") for _ in range(DIGITS))
    question = encode(tokenizer, QUESTION.format(name=name))
    answer = encode(tokenizer, f" {key}")
    needle = np.concatenate((question, answer, encode(tokenizer, ".\n")))
    room = length - len(needle) - len(question) - len(answer)
    if room < 0:
        raise ValueError(
            f"lengths must be at least {length - room} for a needle and its question; got {length}."
        )
    start = rng.randrange(len(text) - room + 1)
    hay = text[start : start + room]
    place = round(depth * room)
    window = np.concatenate((hay[:place], needle, hay[place:], question, answer))
    return window, len(answer)


def shortest_window(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return a length that has room for every needle: each digit may be a token."""
    question = max(len(encode(tokenizer, QUESTION.format(name=name))) for name in TEST_NAMES)
    return 2 * (question + DIGITS + 1) + len(encode(tokenizer, ".\n"))


@torch.no_grad()
def find_needles(
    model: LongContextForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    text: Tokens,
    lengths: Sequence[int],
    *,
    depths: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    trials: int = 10,
    memory_limit: int | None = None,
    on_score: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Ask for hidden keys at every length and depth, in one pass that reads the right tokens.

    Args:
        model: In evaluation mode.
        tokenizer: Tokenizer of the model.
        text: Text that keys are hidden in.
        lengths: Lengths of the windows; those too short for a needle and its question are left out.
        depths: Where the key is.
        trials: Keys for each length and depth.
        memory_limit: Bytes that a pass may take; what the machine has left if None.
        on_score: Called with each score when it is there.

    Returns:
        ``scores``: by ``length`` and ``depth`` the share of keys all of whose tokens the model
        finds most likely, its 95% interval (Wilson), and the mean ``probability`` of a key;
        ``stopped``: why there are no more, or None.
    """
    scores: list[dict[str, Any]] = []
    for length in sorted({x for x in lengths if x >= shortest_window(tokenizer)}):
        stopped = obstacle(model, len(text), length, memory_limit)
        if stopped is not None:
            return {"scores": scores, "stopped": stopped}
        for depth in depths:
            exact, probability = 0, 0.0
            for trial in range(trials):
                window, asked = hide_needle(
                    tokenizer, text, length, depth=depth, seed=f"{length} {depth} {trial}"
                )
                tokens = torch.from_numpy(window.astype(np.int64))[None].to(model.device)
                logits = model(tokens[:, :-1], use_cache=False, logits_to_keep=asked).logits[0]
                key = tokens[0, -asked:]
                exact += int((logits.argmax(-1) == key).all())
                chosen = logits.double().log_softmax(-1).gather(1, key[:, None])
                probability += chosen.sum().exp().item()
            low, high = wilson_interval(exact, trials)
            scores.append(
                {
                    "length": length,
                    "depth": depth,
                    "trials": trials,
                    "exact_match": exact / trials,
                    "exact_low": low,
                    "exact_high": high,
                    "probability": probability / trials,
                }
            )
            if on_score is not None:
                on_score(scores[-1])
    return {"scores": scores, "stopped": None}
