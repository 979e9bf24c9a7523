"""The attention implementation that each part of a model asks transformers for.

A *holder* is a module with a configuration among its attributes, named as that attribute is:
``model.decoder.config``. Holders often share one configuration. Attention modules read from theirs
which function to call; models read from theirs which masks to build.
"""

import copy
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from adasparse.integrations.huggingface.attention import EXPLICIT_NAME, LEFT_DENSE, NAME
from adasparse.integrations.huggingface.heads import CHILD

#: Attribute of a sparse model that holds what ``Plan.apply`` changed.
_BEFORE = "_adasparse_before"
#: Implementations that every installation of transformers has.
_EVERYWHERE = ("eager", "sdpa", None)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Configurations to switch to sparse attention.

    Args:
        switched: New implementation of the configuration of each holder named; it changes for all
            that share that configuration.
        split: Holders that get a copy of their configuration before, together with each other.
    """

    switched: dict[str, str]
    split: tuple[str, ...] = ()

    def apply(self, model: nn.Module) -> None:
        """Switch configurations of ``model``, which must be its own; see ``use_own_configs``."""
        before = Before()
        copies: dict[int, PreTrainedConfig] = {}
        for name in self.split:
            held = _holder(model, name)
            if held is not None:
                module, attribute, config = held
                own = copies.setdefault(id(config), copy.copy(config))
                before.split.append((module, attribute, config))
                setattr(module, attribute, own)
        for name, implementation in self.switched.items():
            held = _holder(model, name)
            if held is not None:
                before.switched.append((held[2], held[2]._attn_implementation))
                _set(held[2], implementation)
        object.__setattr__(model, _BEFORE, before)

    @classmethod
    def for_all(cls, model: nn.Module, implementation: str) -> "Plan":
        """Return a plan that switches every configuration, as version 0.1.0 did."""
        return cls(switched={name: implementation for name, _ in _distinct(model)})


@dataclass(eq=False)
class Before:
    """Changes of a plan: implementations, and configurations of holders that were split off."""

    switched: list[tuple[PreTrainedConfig, str | None]] = field(default_factory=list)
    split: list[tuple[nn.Module, str, PreTrainedConfig]] = field(default_factory=list)


def undo_plan(model: nn.Module) -> None:
    """Give every configuration the implementation that it had before ``Plan.apply``."""
    undo(model.__dict__.pop(_BEFORE))


def undo(before: Before) -> None:
    """Set configurations back to what they were."""
    for config, implementation in reversed(before.switched):
        _set(config, implementation)
    for module, attribute, config in reversed(before.split):
        setattr(module, attribute, config)


def has_plan(model: nn.Module) -> bool:
    """Tell whether a plan was applied to a model."""
    return _BEFORE in model.__dict__


def _set(config: PreTrainedConfig, implementation: str | None) -> None:
    # Not through the property, which would set that of every part, too.
    config._attn_implementation_internal = implementation


def holders(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, PreTrainedConfig]]:
    """Yield the name of every holder, its module, its attribute and its configuration."""
    for name, module in model.named_modules():
        for attribute, value in list(vars(module).items()):
            if isinstance(value, PreTrainedConfig):
                yield f"{name}.{attribute}".removeprefix("."), module, attribute, value


def _holder(model: nn.Module, name: str) -> tuple[nn.Module, str, PreTrainedConfig] | None:
    owner, _, attribute = name.rpartition(".")
    module = submodule(model, owner)
    config = vars(module).get(attribute) if module is not None else None
    return (module, attribute, config) if module is not None and config is not None else None


def submodule(model: nn.Module, name: str) -> nn.Module | None:
    """Find a module by its name in this model, or in one with or without a head on top of it."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for candidate in (name, name.removeprefix(prefix), f"{prefix}{name}"):
        try:
            return model.get_submodule(candidate)
        except AttributeError:
            continue
    return None


def _distinct(model: nn.Module) -> list[tuple[str, PreTrainedConfig]]:
    """Return each configuration once, by the name of its first holder."""
    found = {id(config): (name, config) for name, _, _, config in reversed([*holders(model)])}
    return [*reversed(found.values())]


def use_own_configs(model: nn.Module) -> list[tuple[nn.Module, str, PreTrainedConfig]]:
    """Replace configurations, which models may share, by copies; return what ``put_back`` takes."""
    memo: dict[int, Any] = {}
    given = [(module, attribute, config) for _, module, attribute, config in holders(model)]
    for module, attribute, config in given:
        setattr(module, attribute, copy.deepcopy(config, memo))
    return given


def put_back(given: Iterable[tuple[nn.Module, str, PreTrainedConfig]]) -> None:
    """Undo ``use_own_configs``."""
    for module, attribute, config in given:
        setattr(module, attribute, config)


def leave_others_dense(model: nn.Module) -> None:
    """Mark modules that may ask for sparse attention and have no exponents: they get softmax."""
    for _, module, _, config in holders(model):
        if config._attn_implementation in (NAME, EXPLICIT_NAME) and CHILD not in module._modules:
            setattr(module, LEFT_DENSE, True)


def recorded(config: PreTrainedConfig) -> Any:
    """Return the implementation of a configuration, those of its parts by their names."""
    parts = {name: getattr(config, name, None) for name in config.sub_configs}
    inner = {name: recorded(part) for name, part in parts.items() if part is not None}
    return {"": config._attn_implementation, **inner} if inner else config._attn_implementation


def loadable(implementations: Any) -> Any:
    """Replace implementations that may not be installed by None, the choice of transformers."""
    if isinstance(implementations, dict):
        return {name: loadable(x) for name, x in implementations.items()}
    return implementations if implementations in _EVERYWHERE else None


@cache
def uses_interface(cls: Any) -> bool:
    """Tell whether the code of a module class calls the attention interface of transformers."""
    return any(
        "ALL_ATTENTION_FUNCTIONS" in _names(function.__code__)
        for base in cls.__mro__
        if base not in PreTrainedModel.__mro__
        for value in vars(base).values()
        if (function := _unwrapped(value)) is not None
    )


def _unwrapped(value: Any) -> types.FunctionType | None:
    value = getattr(value, "__func__", value)
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value if isinstance(value, types.FunctionType) else None


def _names(code: types.CodeType) -> set[str]:
    inner = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return set(code.co_names).union(*(_names(x) for x in inner))


def _supports_sdpa(model: nn.Module, module_name: str) -> bool:
    """Tell whether the innermost model around a module says that it can run with SDPA.

    Its modules then say whether they are causal where they get no mask.
    """
    while True:
        owner = model.get_submodule(module_name)
        if isinstance(owner, PreTrainedModel):
            return bool(owner._supports_sdpa)
        if not module_name:
            return False
        module_name = module_name.rpartition(".")[0]


def plans(model: nn.Module, through: list[str], own_code: list[str]) -> Iterator[Plan]:
    """Yield plans for a model, the best first; which of them is right only running it tells.

    Args:
        model: The model.
        through: Names of modules that attend through the interface.
        own_code: Names of modules that attend by code of their own, which must not get masks in
            the form that ours have.
    """
    first = {id(config): name for name, config in reversed(_distinct(model))}
    groups: dict[str, str] = {}
    leaves = []
    for name, _, _, config in holders(model):
        owner = name.rpartition(".")[0]
        if owner in through:
            is_told = _supports_sdpa(model, owner)
            groups.setdefault(first[id(config)], NAME if is_told else EXPLICIT_NAME)
            leaves.append(name)
    configs = {name: config for name, _, _, config in holders(model)}
    switched_ids = {id(configs[name]) for name in groups}
    split = tuple(
        name
        for name, _, _, config in holders(model)
        if id(config) in switched_ids
        and _is_around(name, own_code)
        and not _is_around(name, through)
    )
    # A group may have lost the holder that stood for it.
    joint = {_first_outside(model, configs[name], split): impl for name, impl in groups.items()}
    other = {NAME: EXPLICIT_NAME, EXPLICIT_NAME: NAME}
    yield Plan(switched=joint, split=split)
    yield Plan(switched={name: other[impl] for name, impl in joint.items()}, split=split)
    by_leaf = {
        next(x for x in leaves if configs[x] is configs[name]): impl
        for name, impl in groups.items()
    }
    yield Plan(switched=by_leaf, split=tuple(leaves))


def parts(plan: Plan) -> list[Plan]:
    """Return plans that switch one configuration each, where ``plan`` switches several."""
    if len(plan.switched) < 2:
        return []
    return [Plan(switched={name: x}, split=plan.split) for name, x in plan.switched.items()]


def _is_around(holder: str, modules: list[str]) -> bool:
    owner = holder.rpartition(".")[0]
    return any(x == owner or x.startswith(f"{owner}.") or not owner for x in modules)


def _first_outside(model: nn.Module, config: PreTrainedConfig, split: tuple[str, ...]) -> str:
    return next(
        name for name, _, _, other in holders(model) if other is config and name not in split
    )
