"""Text generation with the language model of a run."""

from pathlib import Path
from typing import Any

import torch

from adasparse.longcontext.runs import load_language_run

#: Lowest and highest temperature of sampling; beyond them probabilities overflow or are all alike.
TEMPERATURES = (1e-3, 1e3)


def continue_text(
    run: str | Path,
    prompt: str,
    *,
    max_tokens: int = 100,
    temperature: float = 0.8,
    seed: int = 0,
    limit: int | None = None,
) -> str:
    """Return a prompt followed by the continuation of a run's language model.

    Args:
        run: Folder of a training of a language model.
        prompt: Text, not empty.
        max_tokens: Number of tokens to add.
        temperature: Sampling temperature; 0 takes the most likely token each time.
        seed: Seed of the sampling.
        limit: Largest number of tokens of the prompt; any if None.
    """
    if not prompt:
        raise ValueError("A prompt must have a character at least; got none.")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"A prompt must be Unicode text; got {prompt!r}.") from error
    low, high = TEMPERATURES
    if temperature and not low <= temperature <= high:
        raise ValueError(f"temperature must be 0, or between {low} and {high}; got {temperature}.")
    loaded, tokenizer, _ = load_language_run(run)
    model: Any = loaded  # the types of transformers do not know models of others
    torch.manual_seed(seed)
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    count = inputs["input_ids"].shape[1]
    if limit is not None and count > limit:
        raise ValueError(
            f"A prompt must have at most {limit:,} tokens; got {count:,}. The time grows with the "
            "square of the number. Add --force to read it all the same."
        )
    choice = {"do_sample": True, "temperature": temperature} if temperature else {}
    found = model.generate(**inputs, max_new_tokens=max_tokens, **choice)
    return str(tokenizer.decode(found[0], skip_special_tokens=True))
