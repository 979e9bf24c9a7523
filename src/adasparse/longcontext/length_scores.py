"""Accuracy at growing lengths, as far as memory goes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from adasparse.longcontext.memory import available_memory, forward_bytes
from adasparse.longcontext.metrics import count_correct, wilson_interval
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.tasks import IGNORED, Task, TaskBatch


@dataclass(frozen=True, kw_only=True)
class LengthScore:
    """Accuracy of a model at one length.

    Args:
        length: Length of the source.
        examples: Number of examples.
        exact_match: Share of them that are right from the first token to the last.
        exact_low: Lower end of the 95% interval of that share (Wilson).
        exact_high: Upper end.
        token_accuracy: Share of right tokens among all that were asked for.
        seconds: Wall-clock time.
    """

    length: int
    examples: int
    exact_match: float
    exact_low: float
    exact_high: float
    token_accuracy: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LengthScores:
    """Scores from the shortest length up.

    Args:
        task: Name of the task.
        scores: One for each length that could be run.
        stopped: Why there are no more, or None if all were run.
    """

    task: str
    scores: tuple[LengthScore, ...]
    stopped: str | None = None


def evaluate_lengths(
    model: LongContextForCausalLM,
    task: Task,
    lengths: Sequence[int],
    *,
    examples: int = 100,
    seed: int = 0,
    tokens_per_batch: int = 16384,
    memory_limit: int | None = None,
    on_score: Callable[[LengthScore], object] | None = None,
) -> LengthScores:
    """Score a model at every length, shortest first, until memory would end.

    Examples are the same for every model and every batch size. Training has to use another seed.

    Args:
        model: Model to score, in its own mode afterward.
        task: Task to score it on.
        lengths: Lengths of the source, in any order.
        examples: Number of examples at each length.
        seed: Seed of the examples.
        tokens_per_batch: Examples are run together up to so many tokens, longer ones one by one.
        memory_limit: Bytes that a pass may take; what the machine has left if None.
        on_score: Called with each score when it is there.
    """
    if not lengths or examples < 1:
        raise ValueError(
            f"there must be a length and an example; got {list(lengths)} and {examples}."
        )
    was_training = model.training
    model.eval()
    scores: list[LengthScore] = []
    stopped = None
    try:
        for length in sorted(set(lengths)):
            stopped = _obstacle(model, task, length, memory_limit)
            if stopped is not None:
                break
            scores.append(_score(model, task, length, examples, seed, tokens_per_batch))
            if on_score is not None:
                on_score(scores[-1])
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        stopped = f"length {length}: {str(error) or 'out of memory'}"
    finally:
        model.train(was_training)
    return LengthScores(task=task.name, scores=tuple(scores), stopped=stopped)


def _obstacle(
    model: LongContextForCausalLM, task: Task, length: int, limit: int | None
) -> str | None:
    """Say why one example of this length does not fit into memory."""
    limit = available_memory() if limit is None else limit
    if limit is None:
        return None
    needed = forward_bytes(model.config, length)
    if needed <= limit:  # else the example itself may be more than memory takes
        example = task.batch(0, 1, length)
        asked = int((example.labels != IGNORED).sum())
        needed = forward_bytes(model.config, example.input_ids.numel(), num_logits=asked)
    if needed <= limit:
        return None
    return (
        f"length {length}: a pass takes about {needed / 2**30:.2f} GiB of memory, "
        f"{limit / 2**30:.2f} GiB can be had"
    )


def _score(
    model: LongContextForCausalLM,
    task: Task,
    length: int,
    examples: int,
    seed: int,
    tokens_per_batch: int,
) -> LengthScore:
    """Run all examples of a length."""
    start = time.perf_counter()
    exact = right = asked = done = 0
    while done < examples:
        batch = _next_batch(task, length, examples - done, seed, done, tokens_per_batch)
        correct = count_correct(model, batch)
        exact += int(correct.exact.sum())
        right += int(correct.tokens.sum())
        asked += int(correct.labels.sum())
        done += len(batch.input_ids)
    low, high = wilson_interval(exact, examples)
    return LengthScore(
        length=length,
        examples=examples,
        exact_match=exact / examples,
        exact_low=low,
        exact_high=high,
        token_accuracy=right / asked,
        seconds=time.perf_counter() - start,
    )


def _next_batch(
    task: Task, length: int, left: int, seed: int, first: int, tokens_per_batch: int
) -> TaskBatch:
    """Return as many examples as go together; sources are about half of the longest sequences."""
    size = max(1, min(left, tokens_per_batch // (2 * length)))
    return task.batch(seed, size, length, first=first)


def _is_about_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "alloc" in str(error)
