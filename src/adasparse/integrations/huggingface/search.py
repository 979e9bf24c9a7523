"""The way to make a model sparse, found by running it and verified at alpha 1, where it is softmax.

The model runs on its inputs as they are, without a mask, and padded on either side, first as it is
and then with sparse attention at alpha 1. What its attention modules return must agree each time.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.config import SparsityConfig
from adasparse.integrations.huggingface.dummies import padded_inputs
from adasparse.integrations.huggingface.heads import CHILD, SparseHeads
from adasparse.integrations.huggingface.implementations import (
    Plan,
    parts,
    plans,
    undo_plan,
    uses_interface,
)
from adasparse.integrations.huggingface.probe import (
    Found,
    Trace,
    difference,
    kind_of,
    silent_attention,
    trace,
)
from adasparse.integrations.huggingface.softmax import (
    Normalization,
    route_through_softmax,
    unroute,
)

_SHOWN = 4


@dataclass(kw_only=True)
class Result:
    """The way to make a model sparse.

    Args:
        plan: Configurations to switch.
        found: Modules that can be sparse.
        reasons: Why other modules that attend cannot be.
    """

    plan: Plan = field(default_factory=lambda: Plan(switched={}))
    found: dict[str, Found] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


class _DoesNotVerifyError(Exception):
    """Sparse attention at alpha 1 does something else than the model did."""


def search(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Result:
    """Find and verify the way to make ``model`` sparse; its configurations must be its own.

    Raises:
        ValueError: If there is none, with the reason.
    """
    name = type(model).__name__
    cases = _dense_cases(model, inputs)
    ran = {x for _, seen in cases for x in seen.attended}
    through = [x for x, _ in model.named_modules() if x in ran and uses_interface(_class(model, x))]
    normalized = {x: None for _, seen in cases for x in seen.normalized if x not in through}
    silent = silent_attention(model, [*through, *normalized])
    own_code = [*normalized, *(x for x in silent if not uses_interface(_class(model, x)))]
    result = Result()
    for attempt in (_through_interface, _through_softmax):
        attempt(model, cases, through, own_code, result)
    if not result.found:
        reason = _why_nothing(result, own_code) + _not_finite(model)
        raise ValueError(f"{name} cannot be made sparse: {reason}")
    return result


def _class(model: nn.Module, name: str) -> Any:
    return type(model.get_submodule(name))


Cases = list[tuple[Mapping[str, Any], Trace]]


def _dense_cases(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Cases:
    """Run the model as it is; return what it was given and what it did, case by case."""
    try:
        cases: Cases = [(inputs, trace(model, inputs))]
    except Exception as error:
        raise ValueError(
            f"sparsify() runs the model once to see which modules attend; {type(model).__name__} "
            f"failed on {', '.join(inputs)} with {type(error).__name__}: {error}. "
            "Pass inputs=... that fit."
        ) from error
    unmasked = {key: x for key, x in inputs.items() if not key.endswith("attention_mask")}
    ways = [[unmasked]] if len(unmasked) < len(inputs) else []
    for way in (*([x] for x in ways), padded_inputs(model, inputs)):
        for others in way:
            try:
                cases += [(x, trace(model, x)) for x in others]
            except Exception:  # the model cannot run so, and need not when sparse
                continue
            break
    return cases


def _check(model: PreTrainedModel, cases: Cases, names: list[str]) -> list[Trace]:
    """Run all cases again; raise ``_DoesNotVerifyError`` if ``names`` or the model do otherwise."""
    traces = []
    for inputs, expected in cases:
        try:
            actual = trace(model, inputs)
        except Exception as error:
            raise _DoesNotVerifyError(
                f"a forward pass failed with {type(error).__name__}: {error}"
            ) from error
        where = difference(actual, expected, inputs, [*actual.found, *names])
        if where is not None:
            raise _DoesNotVerifyError(
                f"its output changes even at alpha 1, where sparse attention is softmax ({where}). "
                "It must do something that the attention interface does not tell."
            )
        traces.append(actual)
    return traces


def _try_plan(
    model: PreTrainedModel, plan: Plan, cases: Cases, own_code: list[str]
) -> dict[str, Found]:
    """Return the modules that attend through the interface under a plan, which stays applied."""
    plan.apply(model)
    try:
        traces = _check(model, cases, own_code)
    except BaseException:
        undo_plan(model)
        raise
    return {name: found for seen in reversed(traces) for name, found in seen.found.items()}


def _through_interface(
    model: PreTrainedModel, cases: Cases, through: list[str], own_code: list[str], result: Result
) -> None:
    if not through:
        return
    whole = [*plans(model, through, own_code)]
    first_error = ""
    for plan in whole:
        try:
            result.found = _try_plan(model, plan, cases, own_code)
            result.plan = plan
            return
        except _DoesNotVerifyError as error:
            first_error = first_error or str(error)
    good: list[Plan] = []
    for part in (*parts(whole[0]), *parts(whole[1])):
        if part.switched.keys() & {name for other in good for name in other.switched}:
            continue
        try:
            _try_plan(model, part, cases, own_code)
        except _DoesNotVerifyError:
            continue
        undo_plan(model)
        good.append(part)
    joint = {name: x for part in good for name, x in part.switched.items()}
    if joint:
        try:
            plan = Plan(switched=joint, split=whole[0].split)
            result.found = _try_plan(model, plan, cases, own_code)
            result.plan = plan
        except _DoesNotVerifyError:
            pass
    result.reasons.update({x: first_error for x in through if x not in result.found})


def _through_softmax(
    model: PreTrainedModel, cases: Cases, through: list[str], own_code: list[str], result: Result
) -> None:
    found: dict[str, Found] = {}
    for name in (*own_code, *(x for x in through if x not in result.found)):
        attention = _own_attention(model, name, [seen for _, seen in cases])
        if isinstance(attention, Found):
            found[name] = attention
        elif attention is not None:
            result.reasons.setdefault(name, attention)
    if not found:
        return
    try:
        with _routed(model, found):
            _check(model, cases, [*found])
    except _DoesNotVerifyError as error:
        for name in found:
            result.reasons.setdefault(name, str(error))
        return
    result.found.update(found)
    result.reasons = {name: why for name, why in result.reasons.items() if name not in found}


def _own_attention(model: nn.Module, name: str, traces: list[Trace]) -> Found | str | None:
    """Tell what kind of attention a module does in its own code, or why it cannot be replaced.

    None if it does not normalize anything, or is no attention.
    """
    module = model.get_submodule(name)
    calls = [(x, seen.batch[name]) for seen in traces for x in seen.normalized.get(name, ())]
    if not calls or not re.search("att", f"{type(module).__name__} {name}", re.IGNORECASE):
        return None
    if any(x == name or x.startswith(f"{name}.") for seen in traces for x in seen.rebuilt):
        return "its code is replaced by other code at some lengths of the input"
    if any(_has_several_shapes(seen.normalized.get(name, [])) for seen in traces):
        return (
            "it attends by code of its own, which takes several softmaxes of different shapes and "
            "none of them over the keys of all queries"
        )
    fitting = [h for h in _head_counts(module) if all(x.fits(h, batch) for x, batch in calls)]
    if not fitting:
        shapes = ", ".join(sorted({f"{x.shape} over dimension {x.dim}" for x, _ in calls}))
        return (
            "it attends by code of its own, whose softmax is not over the last dimension of "
            f"(b, h, q, k) or (b * h, q, k); got {shapes}"
        )
    first = next(seen.normalized[name] for seen in traces if name in seen.normalized)
    q, k = first[0].shape[-2:]
    causal = [x.is_causal for x in first if x.is_causal is not None]
    return Found(
        name=name,
        num_heads=fitting[0],
        embed_dim=0,
        attention=kind_of(name, module, q, k, bool(causal) and all(causal)),
        is_own_code=True,
    )


def _has_several_shapes(calls: list[Normalization]) -> bool:
    """Tell whether scores of different shapes are normalized in one call of a module.

    Approximations of attention do that, such as Nyström's; their softmaxes are not over keys.
    """
    shapes: dict[int, set[tuple[int, ...]]] = {}
    for call in calls:
        shapes.setdefault(call.turn, set()).add(call.shape)
    return any(len(found) > 1 for found in shapes.values())


def _head_counts(module: nn.Module) -> list[int]:
    """Return how many heads a module may have, by its attributes or those of its settings."""
    found: dict[int, None] = {}
    for owner in (module, getattr(module, "config", None)):
        for key, value in vars(owner).items() if owner is not None else ():
            is_count = "head" in key and not re.search("dim|size|key_value|kv", key)
            if is_count and isinstance(value, int) and not isinstance(value, bool) and value > 0:
                found.setdefault(value)
    return [*found]


@contextmanager
def _routed(model: nn.Module, found: Mapping[str, Found]) -> Iterator[None]:
    """Have modules attend through their softmax at alpha 1."""
    one = SparsityConfig(alpha="fixed", init_alpha=1.0)
    modules = {name: model.get_submodule(name) for name in found}
    for name, module in modules.items():
        heads = SparseHeads(one, num_heads=found[name].num_heads, embed_dim=None)
        module.add_module(CHILD, heads)
        route_through_softmax(module)
    try:
        yield
    finally:
        for module in modules.values():
            unroute(module)
            del module._modules[CHILD]


def _why_nothing(result: Result, own_code: list[str]) -> str:
    if result.reasons:
        reasons: dict[str, list[str]] = {}
        for name, reason in result.reasons.items():
            reasons.setdefault(reason, []).append(name)
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{_shown(names)}: {reason}" for reason, names in reasons.items())
    if own_code:
        return (
            f"{_shown(own_code)} attend by code of their own, in which no softmax over keys was "
            "seen when the model was run."
        )
    return (
        "it has no attention. No module called the attention interface of transformers, a softmax "
        "over keys or scaled dot-product attention when the model was run."
    )


def _not_finite(model: nn.Module) -> str:
    """Name a weight that is NaN or infinite, which is then the reason for all else."""
    for name, x in model.named_parameters():
        if x.is_floating_point() and not x.is_meta and not bool(x.isfinite().all()):
            return f" {name} has values that are not finite."
    return ""


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)
