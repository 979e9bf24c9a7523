"""Evaluation of a language model on texts longer than its training windows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adasparse._files import write_atomically
from adasparse.longcontext.needle import find_needles
from adasparse.longcontext.perplexity import perplexity_by_length
from adasparse.longcontext.runs import load_language_run
from adasparse.longcontext.task_eval import EVALUATION
from adasparse.longcontext.text import encode, read_text


def evaluate_reading(
    run: str | Path,
    text: str | Path,
    lengths: Sequence[int] | None = None,
    *,
    max_tokens: int = 50_000,
    needles: int = 10,
    memory_limit: int | None = None,
    on_score: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Read a text at every length; return what ``eval.json`` in the folder of the run says.

    Args:
        run: Folder of a training of a language model.
        text: A file that it was not trained on.
        lengths: Lengths of the windows; 1, 2, 4 and 8 times that of training if None.
        max_tokens: Number of tokens to read at each length, but at least one window.
        needles: Keys to hide at each length and depth; none if 0.
        memory_limit: Bytes that a pass may take; what the machine has left if None.
        on_score: Called with each length and each depth when it is there.

    Returns:
        ``attention``, ``positions``, ``seed``, ``train_length``, ``perplexity`` as
        ``perplexity_by_length`` gives it and ``needles`` as ``find_needles`` does, or None.
    """
    model, tokenizer, recipe = load_language_run(run)
    lengths = lengths or [recipe.context * 2**i for i in range(4)]
    tokens = encode(tokenizer, read_text(text))
    if len(tokens) < min(lengths):
        raise ValueError(
            f"The text must have at least {min(lengths)} tokens, the shortest of the lengths; "
            f"{text} has {len(tokens)}."
        )
    result: dict[str, Any] = {
        "attention": recipe.attention,
        "positions": recipe.positions,
        "seed": recipe.seed,
        "train_length": recipe.context,
        "perplexity": perplexity_by_length(
            model,
            tokens,
            lengths,
            train_length=recipe.context,
            max_tokens=max_tokens,
            memory_limit=memory_limit,
            on_length=on_score,
        ),
        "needles": None,
    }
    if needles:
        result["needles"] = find_needles(
            model,
            tokenizer,
            tokens,
            lengths,
            trials=needles,
            memory_limit=memory_limit,
            on_score=on_score,
        )
    write_atomically(Path(run) / EVALUATION, json.dumps(result, indent=2))
    return result
