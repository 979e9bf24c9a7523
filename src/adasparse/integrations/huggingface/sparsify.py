"""``sparsify``, which makes a model sparse in place, and ``restore``, which undoes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.config import SparsityConfig
from adasparse.integrations.huggingface.dummies import dummy_inputs
from adasparse.integrations.huggingface.heads import CHILD
from adasparse.integrations.huggingface.implementations import (
    has_plan,
    holders,
    put_back,
    undo_plan,
    use_own_configs,
)
from adasparse.integrations.huggingface.models import (
    SparseModelMixin,
    attach,
    detach,
    new_record,
    sparse_config_class,
    sparse_model_class,
)
from adasparse.integrations.huggingface.probe import Found, silent_attention
from adasparse.integrations.huggingface.search import Result, search

_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class SparsityReport:
    """Report of ``sparsify``; ``print`` it.

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

    The model is run on a few tokens, with padding and without, to see which of its modules attend,
    and that these still return the same at alpha 1. It then gets a configuration of its own, the
    sparse counterpart of its class, and in each attention module a child ``entmax`` with the
    exponents. No other model changes, of the same class or not. Attention that the run does not
    reach stays as it was.

    Args:
        model: Any model of transformers. Modules that do not attend through its attention
            interface but by code of their own are made sparse through the softmax that they call,
            which is slower.
        config: What to make sparse; everything, with learned exponents, if None.
        inputs: Keyword arguments of a forward pass, for models whose inputs cannot be guessed or
            with attention that only some inputs reach.

    Returns:
        What was changed, and what was not and why.

    Raises:
        ValueError: If nothing matches, or nothing can be made sparse with the same output at alpha
            1. The model is then as it was before.
    """
    config = SparsityConfig() if config is None else config
    _check_types(model, config, inputs)
    if isinstance(model, SparseModelMixin):
        raise ValueError(f"{type(model).__name__} is sparse already. Call restore(model) first.")
    _refuse_sparse_parts(model)
    _refuse_missing_weights(model)
    if (getattr(model, "_tp_size", None) or 1) > 1:
        raise ValueError(
            f"{type(model).__name__} shares its heads between {model._tp_size} processes. Make it "
            "sparse before: save the sparse model, and load that with tp_plan=..."
        )
    inputs = dummy_inputs(model) if inputs is None else inputs
    given = use_own_configs(model)
    try:
        result = search(model, inputs)
        if has_plan(model):
            undo_plan(model)
        changed, skipped = _choose(model, config, result)
    except BaseException:
        put_back(given)
        raise
    record = new_record(model.config, result, config, changed)
    with torch.inference_mode(False):  # parameters that are made in that mode never train
        attach(model, record)
        _move_to_device(model)
    dense: Any = type(model)
    dense_config: Any = type(model.config)
    config_class = sparse_config_class(dense_config)
    model.config.__class__ = config_class
    model.config.adasparse = record
    model.__class__ = sparse_model_class(dense, config_class)
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
    sparse_class = type(model.config)
    for config in {id(x): x for _, _, _, x in holders(model)}.values():
        if type(config) is sparse_class:
            config.__class__ = sparse_class.dense_class
            del config.adasparse
    model.__class__ = model.dense_class


def _check_types(model: object, config: object, inputs: object) -> None:
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"sparsify() takes a model of transformers; got {type(model).__name__}. "
            + _way_out(model)
        )
    if not isinstance(config, SparsityConfig):
        raise TypeError(f"config must be a SparsityConfig or None; got {type(config).__name__}.")
    if inputs is not None and not (
        isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs)
    ):
        raise TypeError(
            "inputs must be a dictionary of the keyword arguments of a forward pass, such as "
            f"input_ids, or None; got {type(inputs).__name__}."
        )


def _way_out(model: object) -> str:
    modules = model.named_modules() if isinstance(model, nn.Module) else ()
    part = next((name for name, x in modules if isinstance(x, PreTrainedModel)), None)
    if type(model).__module__.startswith("peft."):
        return "To use PEFT, make the model sparse first, then add the adapter."
    if part is not None:
        return f"Pass the model that it holds, .{part}; compile or wrap a model when it is sparse."
    return "For modules of your own, adasparse.nn has sparse attention."


def _refuse_missing_weights(model: nn.Module) -> None:
    """Refuse a model on the meta device; hooks of accelerate load what it has offloaded there."""
    if any(hasattr(x, "_hf_hook") for x in model.modules()):
        return
    weights = (*model.named_parameters(), *model.named_buffers())
    missing = next((name for name, x in weights if x.is_meta), None)
    if missing is not None:
        raise ValueError(
            f"sparsify() runs the model; weights of {type(model).__name__} have no values yet "
            f"(they are on the meta device), such as {missing}. Load them first."
        )


def _refuse_sparse_parts(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, SparseModelMixin):
            raise ValueError(
                f"{type(model).__name__} has a part that is sparse already, {name}. "
                f"Call restore(model.{name}) first."
            )


def _choose(
    model: PreTrainedModel, config: SparsityConfig, result: Result
) -> tuple[dict[str, str], dict[str, str]]:
    """Sort modules into what is done to them, or why nothing is."""
    found, changed, skipped = result.found, {}, {}
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
    skipped.update(result.reasons)
    for name in silent_attention(model, [*found, *result.reasons]):
        skipped[name] = (
            "left as it was: the run did not reach it, or it attends by code of its own without "
            "softmax; inputs=... may reach it"
        )
    return changed, skipped


def _why_not(config: SparsityConfig, attention: Found) -> str | None:
    if not config.matches(attention.name):
        return f"its name does not match {config.modules}"
    if attention.attention not in config.attention:
        return f"it is of kind {attention.attention!r}"
    if config.length_scale is not None and attention.is_own_code:
        return "it attends by code of its own, in which there is no query to scale for its length"
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
    if attention.is_own_code:
        what += ", through its softmax (slower)"
    return what


def _move_to_device(model: nn.Module) -> None:
    """Bring the exponents to where the other parameters of each module are, if they are loaded."""
    for module in model.modules():
        heads = module._modules.get(CHILD)
        if heads is not None:
            device = next((x.device for x in module.parameters() if not x.is_meta), None)
            heads.to(device)
