"""Dispersion of the attention of long-context models as the context grows, head by head."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adasparse.analysis.dispersion.statistics import HeadDispersion, LayerStatistics
from adasparse.integrations.calls import AttentionCall, watching
from adasparse.longcontext.layers import LongContextAttention
from adasparse.longcontext.memory import available_memory, forward_bytes
from adasparse.longcontext.model import LongContextPreTrainedModel
from adasparse.longcontext.tasks import IGNORED, Task, TaskBatch

#: Number of tokens in a batch at most; a longer example forms a batch of its own.
_TOKENS_PER_BATCH = 16384


@dataclass(frozen=True, kw_only=True)
class LengthDispersion:
    """Dispersion of all heads at one length.

    Args:
        length: Length of the source.
        examples: Number of examples.
        rows: Number of queries that predict something, over all examples.
        heads: Dispersion of each head, by layer.
    """

    length: int
    examples: int
    rows: int
    heads: tuple[HeadDispersion, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, lists and dictionaries only."""
        return asdict(self) | {"heads": [head.to_dict() for head in self.heads]}


@dataclass(frozen=True, kw_only=True)
class Dispersion:
    """Dispersion of the attention of a model at several lengths.

    Args:
        task: Name of the task.
        attention: Kind of attention.
        positions: Kind of positions.
        lengths: Dispersion at each length, in ascending order.
    """

    task: str
    attention: str
    positions: str
    lengths: tuple[LengthDispersion, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, lists and dictionaries only."""
        return asdict(self) | {"lengths": [each.to_dict() for each in self.lengths]}


def measure_dispersion(
    model: LongContextPreTrainedModel,
    task: Task,
    lengths: Sequence[int],
    *,
    examples: int = 20,
    seed: int = 0,
    on_length: Callable[[LengthDispersion], object] | None = None,
) -> Dispersion:
    """Measure every head of a long-context model at every length, the shortest first.

    Only queries whose logits predict a label are counted, and only the keys visible to them. The
    model reads the correct tokens (teacher forcing). Memory grows linearly with the length.

    Args:
        model: Model to measure; its training mode is restored afterward.
        task: Task whose examples the model reads.
        lengths: Lengths of the source, in any order.
        examples: Number of examples at each length.
        seed: Seed of the examples, which are the first of those that ``evaluate_lengths`` scores.
        on_length: Callback that receives the result of each length.

    Example:
        >>> from adasparse.longcontext import LongContextConfig, LongContextForCausalLM, find_task
        >>> task = find_task("copy")
        >>> config = LongContextConfig(attention="softmax", vocab_size=task.vocab_size)
        >>> found = measure_dispersion(LongContextForCausalLM(config), task, [8], examples=1)
        >>> found.lengths[0].rows, found.lengths[0].heads[0].support_share
        (9, 1.0)
    """
    _check(model, task, lengths, examples)
    was_training = model.training
    model.eval()
    found = []
    try:
        for length in sorted(set(lengths)):
            found.append(_measure_length(model, task, length, examples, seed))
            if on_length is not None:
                on_length(found[-1])
    finally:
        model.train(was_training)
    return Dispersion(
        task=task.name,
        attention=model.config.attention,
        positions=model.config.positions,
        lengths=tuple(found),
    )


def _check(model: nn.Module, task: Task, lengths: Sequence[int], examples: int) -> None:
    """Raise an error unless all lengths can be measured."""
    if not isinstance(model, LongContextPreTrainedModel):
        raise TypeError(f"model must be a long-context model; got {type(model).__name__}.")
    if not lengths or examples < 1:
        raise ValueError(
            f"there must be a length and an example; got {list(lengths)} and {examples}."
        )
    if min(lengths) < task.shortest:
        raise ValueError(
            f"lengths must be at least {task.shortest} for {task.name}; got {min(lengths)}."
        )
    if task.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"model must have at least the {task.vocab_size} tokens of {task.name}; "
            f"got {model.config.vocab_size}."
        )
    longest = max(lengths)
    limit = available_memory()
    needed = forward_bytes(model.config, task.batch(0, 1, longest).input_ids.numel())
    if limit is not None and needed > limit:
        raise ValueError(
            f"lengths must fit into {limit / 2**30:.2f} GiB of memory; {longest} takes about "
            f"{needed / 2**30:.2f} GiB."
        )


@torch.no_grad()
def _measure_length(
    model: LongContextPreTrainedModel, task: Task, length: int, examples: int, seed: int
) -> LengthDispersion:
    """Measure all examples of one length."""
    modules = [x for x in model.modules() if isinstance(x, LongContextAttention)]
    layers: dict[nn.Module, LayerStatistics] = {
        x: LayerStatistics(i) for i, x in enumerate(modules)
    }
    rows = done = 0
    while done < examples:
        size = max(1, min(examples - done, _TOKENS_PER_BATCH // (2 * length)))
        batch = task.batch(seed, size, length, first=done)
        rows += int((batch.labels[:, 1:] != IGNORED).sum())
        _add_batch(model, layers, batch)
        done += size
    if not rows:
        raise ValueError(f"examples must ask for something; {task.name} at {length} does not.")
    heads = tuple(head for sums in layers.values() for head in sums.heads())
    return LengthDispersion(length=length, examples=examples, rows=rows, heads=heads)


def _add_batch(
    model: LongContextPreTrainedModel, layers: dict[nn.Module, LayerStatistics], batch: TaskBatch
) -> None:
    """Run a batch and add the attention of each layer to its statistics."""
    device = next(model.parameters()).device
    # The label at a position is predicted one position earlier.
    asked = [(row[1:] != IGNORED).nonzero().squeeze(1).to(device) for row in batch.labels]
    answers = batch.relevant[:, 1:].to(device)
    with _inputs_of(layers) as inputs:

        def see(call: AttentionCall) -> None:
            if call.module not in layers:
                return
            for i, rows in enumerate(asked):
                layer_input = inputs[call.module][i, rows]
                layers[call.module].add(call, i, rows, answers[i, rows], layer_input)

        with watching(see):
            model.base_model(
                input_ids=batch.input_ids.to(device),
                attention_mask=batch.attention_mask.to(device),
                use_cache=False,
            )


@contextmanager
def _inputs_of(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Yield a dictionary that holds the input ``(b, q, n)`` of the last of these modules to run."""
    inputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        inputs.clear()
        inputs[module] = args[0]

    handles = [module.register_forward_pre_hook(keep) for module in modules]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()
