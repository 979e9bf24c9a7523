"""One call makes a model sparse, one call makes it what it was."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from adasparse.integrations.huggingface.attention import EXPLICIT_NAME, NAME
from adasparse.integrations.huggingface.config import SparsityConfig
from adasparse.integrations.huggingface.heads import CHILD
from adasparse.integrations.huggingface.models import (
    SparseModelMixin,
    attach,
    detach,
    new_record,
    sparse_config_class,
    sparse_model_class,
)
from adasparse.integrations.huggingface.probe import (
    Found,
    dummy_inputs,
    find_attention,
    is_same,
    run,
    silent_attention,
)

_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class SparsityReport:
    """What ``sparsify`` did; ``print`` it.

    Args:
        model: Name of the class of the model.
        changed: What was done, by the name of each module that is now sparse.
        skipped: Why not, by the name of each other attention module.
    """

    model: str
    changed: dict[str, str]
    skipped: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.model}: {len(self.changed)} sparse, {len(self.skipped)} skipped"]
        lines += [f"  {name}: {what}" for name, what in self.changed.items()]
        lines += [f"  {name}: skipped, {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def sparsify(
    model: PreTrainedModel,
    config: SparsityConfig | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
) -> SparsityReport:
    """Give a model of transformers sparse attention, in place.

    The model is run on a few tokens to see which of its modules attend, and that it still gives the
    same at alpha 1. It then gets a
    configuration of its own, the sparse counterpart of its class, and in each attention module a
    child ``entmax`` with the exponents. No other model changes, of the same class or not.

    Args:
        model: Any model that attends through the attention interface of transformers.
        config: What to make sparse; everything, with learned exponents, if None.
        inputs: Keyword arguments of a forward pass, for models whose inputs cannot be guessed or
            with attention that only some inputs reach.

    Returns:
        What was changed, and what was not and why.

    Raises:
        ValueError: If nothing matches, or the model does not use the attention interface. It is
            then as it was before.
    """
    config = SparsityConfig() if config is None else config
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"sparsify() takes a model of transformers; got {type(model).__name__}. "
            "To use PEFT, make the model sparse first, then add the adapter."
        )
    if isinstance(model, SparseModelMixin):
        raise ValueError(f"{type(model).__name__} is sparse already. Call restore(model) first.")
    inputs = dummy_inputs(model) if inputs is None else inputs
    given = model.config
    undo = _configs(model)
    try:
        implementation, found = _find(model, inputs)
        changed, skipped = _choose(model, config, found)
    except BaseException:
        _put_back(undo)
        raise
    record = new_record(
        given,
        implementation,
        config,
        {
            name: {"num_heads": found[name].num_heads, "embed_dim": found[name].embed_dim}
            for name in changed
        },
        [name for name in skipped if name in found],
    )
    attach(model, record)
    dense: Any = type(model)
    dense_config: Any = type(model.config)
    config_class = sparse_config_class(dense_config)
    model.config.__class__ = config_class
    model.config.adasparse = record
    model.__class__ = sparse_model_class(dense, config_class)
    _move_to_device(model)
    return SparsityReport(model=dense.__name__, changed=changed, skipped=skipped)


def restore(model: PreTrainedModel) -> None:
    """Turn a sparse model back, in place: same class, same outputs as before ``sparsify``.

    Whatever training did to other weights stays; the exponents are dropped. Works also for a model
    that was loaded sparse.
    """
    if not isinstance(model, SparseModelMixin):
        raise ValueError(
            f"restore() takes a model that sparsify() changed; got {type(model).__name__}."
        )
    detach(model)
    sparse_class, record = type(model.config), model.config.adasparse
    for config in {id(config): config for config, _, _ in _configs(model)}.values():
        config._attn_implementation = record["attn_implementation"]
        if type(config) is sparse_class:
            config.__class__ = sparse_class.dense_class
            del config.adasparse
    model.__class__ = model.dense_class


def _configs(model: nn.Module) -> list[tuple[PreTrainedConfig, nn.Module, str]]:
    """Return every configuration that a module holds, the module, and the attribute."""
    return [
        (value, module, attribute)
        for module in model.modules()
        for attribute, value in vars(module).items()
        if isinstance(value, PreTrainedConfig)
    ]


def _use_own_configs(model: nn.Module, implementation: str) -> None:
    """Replace configurations, which models may share, by copies with that attention."""
    memo: dict[int, Any] = {}
    for config, module, attribute in _configs(model):
        own = copy.deepcopy(config, memo)
        own._attn_implementation = implementation
        setattr(module, attribute, own)


def _put_back(undo: list[tuple[PreTrainedConfig, nn.Module, str]]) -> None:
    for config, module, attribute in undo:
        setattr(module, attribute, config)


def _find(model: PreTrainedModel, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Found]]:
    """Give the model an implementation that equals its own at alpha 1; return what calls it."""
    name = type(model).__name__
    try:
        expected = run(model, inputs)
    except Exception as error:
        raise ValueError(
            f"sparsify() runs the model once to see which modules attend; {name} failed on "
            f"{', '.join(inputs)} with {type(error).__name__}: {error}. Pass inputs=... that fit."
        ) from error
    for implementation in (NAME, EXPLICIT_NAME):
        _use_own_configs(model, implementation)
        try:
            found, output = find_attention(model, inputs)
        except Exception as error:
            raise ValueError(
                f"{name} cannot be made sparse: a forward pass failed with "
                f"{type(error).__name__}: {error}"
            ) from error
        if not found:
            raise ValueError(
                f"{name} cannot be made sparse: it accepts the name of an attention "
                "implementation and never calls it, but attends by code of its own."
            )
        if is_same(output, expected):
            return implementation, found
    raise ValueError(
        f"{name} cannot be made sparse: its output changes even at alpha 1, where sparse attention "
        "is softmax. It must do something that the attention interface does not tell."
    )


def _choose(
    model: PreTrainedModel, config: SparsityConfig, found: dict[str, Found]
) -> tuple[dict[str, str], dict[str, str]]:
    """Sort modules into what is done to them, or why nothing is."""
    changed, skipped = {}, {}
    for name, attention in found.items():
        why = _why_not(config, attention)
        if why is None:
            changed[name] = _what(config, attention)
        else:
            skipped[name] = why
    if not changed:
        shown = [*found][:_SHOWN] + ["..."] * (len(found) > _SHOWN)
        raise ValueError(
            f"modules={config.modules}, heads={config.heads} and attention={config.attention} "
            f"match none of the {len(found)} attention modules of {type(model).__name__}: "
            + ", ".join(f"{x} ({found[x].attention})" if x in found else x for x in shown)
        )
    for name in silent_attention(model, found):
        skipped[name] = "it did not attend through the interface when the model was run"
    return changed, skipped


def _why_not(config: SparsityConfig, attention: Found) -> str | None:
    if not config.matches(attention.name):
        return f"its name does not match {config.modules}"
    if attention.attention not in config.attention:
        return f"it is of kind {attention.attention!r}"
    if config.heads is not None and max(config.heads) >= attention.num_heads:
        return f"it has {attention.num_heads} heads, no head {max(config.heads)}"
    return None


def _what(config: SparsityConfig, attention: Found) -> str:
    heads = attention.num_heads if config.heads is None else len(config.heads)
    alpha = f"alpha {config.alpha} from {config.init_alpha}"
    if config.alpha == "fixed":
        alpha = f"alpha fixed at {config.init_alpha}"
    elif config.alpha == "annealed":
        alpha += f" to {config.final_alpha} in {config.anneal_steps} steps"
    what = f"{attention.attention}, {heads} of {attention.num_heads} heads, {alpha}"
    if config.length_scale is not None:
        what += f", length scale {config.length_scale}"
    if attention.has_softcap:
        what += ", with a softcap, for which the whole matrix of scores is built"
    return what


def _move_to_device(model: nn.Module) -> None:
    """Bring the exponents to where the other parameters of each module are."""
    for module in model.modules():
        heads = module._modules.get(CHILD)
        if heads is not None:
            device = next((x.device for x in module.parameters(recurse=True)), None)
            heads.to(device)
