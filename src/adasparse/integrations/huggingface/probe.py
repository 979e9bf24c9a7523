"""Modules of a model that attend, found by running it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.attention import AttentionCall, probing
from adasparse.integrations.huggingface.config import AttentionType
from adasparse.integrations.huggingface.implementations import holders, uses_interface
from adasparse.integrations.huggingface.softmax import Normalization, SeeNormalizations

#: How far outputs may differ, relative to the largest number, and be taken for equal.
_ROUNDING = {torch.bfloat16: 0.1, torch.float16: 0.03}


@dataclass(frozen=True, kw_only=True)
class Found:
    """An attention module as it was seen to work.

    Args:
        name: Where it is in the model.
        num_heads: ``h``.
        embed_dim: Size of its input, 0 if that is not known.
        attention: Of which kind it is.
        is_own_code: Whether it attends by code of its own, through softmax.
    """

    name: str
    num_heads: int
    embed_dim: int
    attention: AttentionType
    is_own_code: bool = False


def kind_of(name: str, module: nn.Module, q: int, k: int, is_causal: bool) -> AttentionType:
    """Tell of which kind attention of ``q`` queries to ``k`` keys is."""
    last = name.rpartition(".")[2] if not name.endswith(".self") else name
    if (
        re.search(r"cross|encdec|encoder_attn", last, re.IGNORECASE)
        or getattr(module, "is_cross_attention", False)
        or q != k
    ):
        return "context"
    return "decoder" if is_causal or getattr(module, "is_causal", False) else "encoder"


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run without dropout or gradients, and leave no trace: in generators, modules or settings.

    Some models change themselves in a forward pass, such as BigBird, which gives up its sparse
    blocks for good when an input is short.
    """
    modules = [(x, x.training, dict(vars(x)), _children(x)) for x in model.modules()]
    configs = [(x, dict(vars(x))) for _, _, _, x in holders(model)]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.eval()
        try:
            yield
        finally:
            for module, mode, attributes, children in modules:
                _set_back(vars(module), attributes)
                for name, saved in children.items():
                    _set_back(vars(module)[name], saved)
                module.training = mode
            for config, attributes in configs:
                _set_back(vars(config), attributes)


#: What a module has its parts and hooks in. Transformers adds hooks that collect hidden states in
#: the first forward pass that asks for them, and an attribute of the model that says so.
_PARTS = (
    "_modules",
    "_parameters",
    "_buffers",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


def _children(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {x: dict(vars(module)[x]) for x in _PARTS if x in vars(module)}


def _set_back(current: dict[str, Any], saved: dict[str, Any]) -> None:
    if [*current] == [*saved] and all(current[key] is x for key, x in saved.items()):
        return
    current.clear()
    current.update(saved)


def _named_numbers(value: Any, name: str = "output") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of an output that are numbers, wherever in it they are, with that place."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name, value
    elif isinstance(value, Mapping):
        for key, x in value.items():
            yield from _named_numbers(x, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for i, x in enumerate(value):
            yield from _named_numbers(x, f"{name}[{i}]")


def _first_number(value: Any) -> Tensor | None:
    return next((x for _, x in _named_numbers(value)), None)


def run(model: PreTrainedModel, inputs: Mapping[str, Any]) -> list[Tensor]:
    """Run the model once and return the tensors of its output that are numbers."""
    with undisturbed(model):
        return [x for _, x in _named_numbers(model(**inputs))]


@dataclass(eq=False)
class Trace:
    """Observations of one run of a model.

    Args:
        output: Tensors of the output that are numbers, by their place in it.
        attended: The first tensor that each attention module returned, call by call.
        found: Modules that called the attention interface.
        blind: For these, call by call, which queries see no key ``(b, q)``; None if all do.
        normalized: Calls of softmax and of scaled dot-product attention, by module.
        batch: First two sizes of what each of these modules was given, one of them the batch.
        rebuilt: Modules whose children were replaced by the run.
    """

    output: dict[str, Tensor] = field(default_factory=dict)
    attended: dict[str, list[Tensor]] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    blind: dict[str, list[Tensor | None]] = field(default_factory=dict)
    normalized: dict[str, list[Normalization]] = field(default_factory=dict)
    batch: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rebuilt: list[str] = field(default_factory=list)

    @property
    def has_blind_rows(self) -> bool:
        """Tell whether any query sees no key."""
        return any(x is not None for calls in self.blind.values() for x in calls)


def looks_like_attention(module: nn.Module) -> bool:
    """Tell whether the name of a class or its code says that it attends."""
    cls: Any = type(module)
    return "attention" in cls.__name__.lower() or uses_interface(cls)


class _Tracer:
    """Hooks that fill a trace."""

    def __init__(self, model: nn.Module) -> None:
        self.trace = Trace()
        self.names = {module: name for name, module in model.named_modules()}
        self.running: list[nn.Module] = []
        self.sizes: dict[nn.Module, tuple[int, ...]] = {}
        self.turns: Counter[nn.Module] = Counter()

    @contextmanager
    def hooked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self.names:
                before = module.register_forward_pre_hook(self.begin, with_kwargs=True)
                after = module.register_forward_hook(self.end, always_call=True)
                stack.callback(before.remove)
                stack.callback(after.remove)
            stack.enter_context(probing(self.see_call))
            stack.enter_context(SeeNormalizations(self.see_normalization))
            yield

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.running.append(module)
        self.turns[module] += 1
        given = _first_number([*args, kwargs])
        self.sizes[module] = () if given is None else tuple(given.shape)

    def end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if module in self.running:  # a hook runs twice where it is what failed
            while self.running.pop() is not module:
                pass
        if looks_like_attention(module):
            numbers = _first_number(output)
            if numbers is not None:
                self.trace.attended.setdefault(self.names[module], []).append(numbers)

    def see_call(self, call: AttentionCall) -> None:
        name = self.names[call.module]
        size = self.sizes.get(call.module, ())
        q, k = call.query.shape[2], call.key.shape[2]
        self.trace.found.setdefault(
            name,
            Found(
                name=name,
                num_heads=call.query.shape[1],
                embed_dim=size[-1] if size else 0,
                attention=kind_of(name, call.module, q, k, call.is_causal),
            ),
        )
        self.trace.blind.setdefault(name, []).append(_blind_rows(call))

    def see_normalization(self, seen: Normalization) -> None:
        module = next((x for x in reversed(self.running) if not isinstance(x, nn.Softmax)), None)
        name = self.names.get(module) if module is not None else None
        if name is None or len(seen.shape) < 3:
            return
        turn = self.turns[module]  # type: ignore[index]
        self.trace.normalized.setdefault(name, []).append(replace(seen, turn=turn))
        size = self.sizes.get(module, ())  # type: ignore[arg-type]
        self.trace.batch[name] = size[:-1][:2]


def _blind_rows(call: AttentionCall) -> Tensor | None:
    """Return which queries ``(b, q)`` see no key, None if each sees one."""
    if call.mask is not None and call.mask.dtype != torch.bool:
        can_see = call.mask > torch.finfo(call.mask.dtype).min / 2
        visible = can_see.sum(-1, keepdim=True).amax(1)
    else:
        visible = call.visible()
        while visible.dim() < 4:
            visible = visible.unsqueeze(0)
        visible = visible.amax(1)
    rows = (visible.squeeze(-1) == 0).expand(call.query.shape[0], call.query.shape[2])
    return rows if bool(rows.any()) else None


def trace(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Trace:
    """Run the model once, modules without exponents at alpha 1; return what it showed."""
    tracer = _Tracer(model)
    with undisturbed(model), tracer.hooked():
        tracer.trace.output = dict(_named_numbers(model(**inputs)))
        known = {name: module for module, name in tracer.names.items()}
        tracer.trace.rebuilt = [
            name for name, module in model.named_modules() if known.get(name) is not module
        ]
    return tracer.trace


def find_attention(
    model: PreTrainedModel, inputs: Mapping[str, Any]
) -> tuple[dict[str, Found], list[Tensor]]:
    """Run the model, modules without exponents at alpha 1.

    Returns:
        The modules that called the attention interface, by name, and the output.
    """
    seen = trace(model, inputs)
    return seen.found, [*seen.output.values()]


def difference(
    actual: Trace, expected: Trace, inputs: Mapping[str, Any], names: Iterable[str]
) -> str | None:
    """Return where two traces differ by more than rounding explains, None if nowhere.

    Queries that see no key are left out: what they get is up to the implementation.

    Args:
        actual: Trace with sparse attention at alpha 1.
        expected: Trace of the same inputs without.
        inputs: Keyword arguments of the forward pass.
        names: Attention modules to compare.
    """
    padding = [x for x in inputs.values() if _is_padding_mask(x)] if actual.has_blind_rows else []
    for name in names:
        one, other = actual.attended.get(name, []), expected.attended.get(name, [])
        blind = actual.blind.get(name, [])
        if len(one) != len(other):
            return f"{name} ran {len(one)} times instead of {len(other)}"
        for i, (x, y) in enumerate(zip(one, other, strict=True)):
            rows = blind[i] if len(blind) == len(one) else None
            if not _agree(x, y, [*padding, *([~rows] if rows is not None else [])], bool(padding)):
                return f"the output of {name}"
    for place, y in expected.output.items():
        if place not in actual.output:
            if "attentions" in place:
                continue  # eager attention returns weights that nobody asked for
            return place
        if not _agree(actual.output[place], y, padding, bool(padding)):
            return place
    return None


def _is_padding_mask(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.dim() == 2
        and not value.is_floating_point()
        and bool(((value == 0) | (value == 1)).all())
    )


def _agree(x: Tensor, y: Tensor, masks: list[Tensor], needs_mask: bool) -> bool:
    """Tell whether tensors agree where all masks ``(b, n)`` that fit them are true.

    If a mask is needed and none fits, nothing is known of their rows and they are not compared.
    """
    if x.shape != y.shape:
        return False
    fitting = [mask.bool() for mask in masks if mask.shape == y.shape[:2]]
    if needs_mask and not fitting:
        return True
    for mask in fitting:
        x, y = (z.masked_fill(~mask.reshape(*mask.shape, *[1] * (z.dim() - 2)), 0) for z in (x, y))
    is_number = y.isfinite()
    x, y = x[is_number], y[is_number]
    if not y.numel():
        return True
    allowed = _ROUNDING.get(y.dtype, 1e-3) * y.abs().max().item()
    return bool(x.isfinite().all()) and (x - y).abs().max().item() <= allowed


def silent_attention(model: nn.Module, called: Iterable[str]) -> list[str]:
    """Return modules that look like attention and took no part in any call."""
    called = [*called]
    looks = [
        name
        for name, module in model.named_modules()
        if looks_like_attention(module) and type(module).forward is not nn.Module.forward
    ]

    def is_related(name: str, other: str) -> bool:
        return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")

    silent = [name for name in looks if not any(is_related(name, other) for other in called)]
    # Of a module and what it is made of, the inner one says enough.
    return [name for name in silent if not any(other.startswith(f"{name}.") for other in silent)]
