"""Tiny instances of every model family in transformers, and one verdict on each class of them.

A family for which small settings give no model that runs is told from one that cannot be made
sparse.
"""

import contextlib
import copy
import inspect
import itertools
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from adasparse.integrations.huggingface import SparsityConfig, SparsityReport, restore, sparsify
from adasparse.integrations.huggingface.probe import undisturbed
from support.dense_oracle import DenseOracle
from support.family_inputs import possible_inputs
from support.family_media import fuller_inputs
from support.family_settings import ATTEMPTS, small_config

LARGEST = 25_000_000  # parameters
#: Largest error, relative to the largest number of a tensor.
TOLERANCE = 2e-4


def run(model: PreTrainedModel, inputs: Mapping[str, Any]) -> list[Tensor]:
    """Return all numbers of an output but weights, which eager models return unasked."""
    with undisturbed(model):
        return [*_numbers(model(**inputs))]


def _numbers(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value
    elif isinstance(value, Mapping):
        for key, x in value.items():
            if "attentions" not in key:
                yield from _numbers(x)
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from _numbers(x)


def families() -> list[str]:
    """Return the types of models in transformers' mapping of configurations."""
    return sorted(CONFIG_MAPPING_NAMES)


def classes(family: str) -> list[str]:
    """Return the model classes of a family, over all Auto classes."""
    found: dict[str, None] = {}
    for name, mapping in vars(modeling_auto).items():
        if re.fullmatch(r"MODEL_.*MAPPING_NAMES", name) and family in mapping:
            value = mapping[family]
            found.update(dict.fromkeys(value if isinstance(value, (tuple, list)) else [value]))
    return [name for name in found if name in _names()]


@cache
def _names() -> frozenset[str]:
    """Return what transformers has; to ask for a name would import its module."""
    return frozenset(dir(transformers))


class NotBuiltError(Exception):
    """A tiny instance of this class cannot be made from shrunken settings, or does not run.

    Args:
        message: The first reason.
        reasons: That of each attempt.
    """

    def __init__(self, message: str, reasons: list[str] | None = None) -> None:
        super().__init__(message)
        self.reasons = reasons or [message]


class NoForwardError(Exception):
    """A class is made of parts, and has no forward pass of its own that takes tensors."""


def build(family: str, model_class: str) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """Return a tiny model in eval mode that runs, and inputs for it."""
    try:
        forward = getattr(transformers, model_class).forward
    except ImportError as error:  # of a package that this class alone needs
        raise NotBuiltError(f"{type(error).__name__}: {error}") from error
    if forward is torch.nn.Module.forward:
        raise NoForwardError("it has no forward pass")
    parameters = inspect.signature(forward).parameters
    if "inference_session" in parameters:
        raise NoForwardError("its forward pass takes a session, which it changes")
    if "shared_kv_states" in parameters:
        raise NoForwardError("its forward pass takes the keys and values of another model")
    reasons = []
    for rules in ATTEMPTS:
        try:
            make = getattr(transformers, model_class)
            model = _random_model(make, _part_for(make, small_config(family, rules, model_class)))
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        failures = []
        for inputs in itertools.chain(possible_inputs(model), fuller_inputs(model)):
            try:
                run(model, inputs)
            except Exception as error:
                failures.append(f"does not run, {type(error).__name__}: {error}")
            else:
                return model, inputs
        reasons += failures or [f"no inputs are known for {', '.join(parameters)}"]
    raise NotBuiltError(reasons[0], reasons)


def _part_for(make: Any, config: PreTrainedConfig) -> PreTrainedConfig:
    """Return the part of a configuration that a class is made from, such as that of its text."""
    wanted = make.config_class
    if wanted is None or isinstance(config, wanted):
        return config
    parts = (getattr(config, name, None) for name in config.sub_configs)
    return next((x for x in parts if isinstance(x, wanted)), config)


def _random_model(make: Any, config: PreTrainedConfig) -> PreTrainedModel:
    """Build a model, its weights large enough for attention to matter."""
    with torch.device("meta"):
        count = sum(x.numel() for x in make(copy.deepcopy(config)).parameters())
    if count > LARGEST:
        raise NotBuiltError(f"it has {count} parameters")
    torch.manual_seed(0)
    model: PreTrainedModel = make(config).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if x.dim() == 2 and "embed" not in name and "norm" not in name.lower():
                torch.nn.init.xavier_normal_(x, gain=1.2)
    return model


def cases(inputs: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield inputs with and without padding."""
    yield "plain", inputs
    ids = inputs.get("input_ids")
    if ids is None:
        return
    for side in ("right", "left"):
        mask = torch.ones_like(ids)
        mask[-1, ..., -3:] = 0
        yield side, {**inputs, "attention_mask": mask if side == "right" else mask.flip(-1)}


@dataclass(frozen=True)
class Verdict:
    """Outcome for one class.

    It is ``works``, ``given inputs`` (the same if ``sparsify`` is told inputs), ``partly`` (some
    attention stays as it was), ``no attention``, ``refused``, ``wrong``, ``error``, ``no forward``
    (it cannot be called by itself) or ``not built``.
    """

    outcome: str
    note: str = ""
    route: str = ""


def _error(actual: list[Tensor], expected: list[Tensor], inputs: Mapping[str, Tensor]) -> float:
    """Return the largest relative error at positions that are not padding."""
    if len(actual) != len(expected):
        return float("inf")
    mask = inputs.get("attention_mask")
    worst = 0.0
    for x, y in zip(actual, expected, strict=True):
        if x.shape != y.shape:
            return float("inf")
        x, y = x.double(), y.double()
        if mask is not None and not bool(mask.all()):
            if x.shape[:2] != mask.shape:
                continue
            x, y = x[mask.bool()], y[mask.bool()]
        is_number = y.isfinite()
        if is_number.any():
            x, y = x[is_number], y[is_number]
            worst = max(worst, ((x - y).abs().max() / y.abs().max().clamp(min=1e-6)).item())
    return worst


def _is_same(actual: list[Tensor], expected: list[Tensor], inputs: Mapping[str, Tensor]) -> bool:
    """Whether two dense models agree; one of NaN, such as some eager ones, agrees with none."""
    are_numbers = [*map(torch.isfinite, actual)], [*map(torch.isfinite, expected)]
    if any(x.any() and not y.any() for x, y in zip(*are_numbers, strict=False)):
        return False
    return _error(actual, expected, inputs) <= TOLERANCE


def judge(family: str, model_class: str) -> Verdict:
    """Build a class and try everything that is promised of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _judge(family, model_class)
        except NotBuiltError as error:
            return Verdict("not built", _short(error))
        except NoForwardError as error:
            return Verdict("no forward", _short(error))
        except Exception as error:
            return Verdict("error", _short(f"{type(error).__name__}: {error}"))


def _short(note: object) -> str:
    return " ".join(str(note).split())[:160]


def _judge(family: str, model_class: str) -> Verdict:
    model, given = build(family, model_class)
    if not _equal(run(model, given), run(model, given)):
        raise NotBuiltError("the dense model gives something else each time")
    dense = {}
    for name, inputs in cases(given):
        with contextlib.suppress(Exception):  # some models take no mask
            dense[name] = (inputs, run(model, inputs))
    one = SparsityConfig(alpha="fixed", init_alpha=1.0)
    try:
        report, told = _make_sparse(model, given, one, dense)
    except ValueError as error:
        for inputs, expected in dense.values():
            if not _equal(run(model, inputs), expected):
                return Verdict("wrong", "refused, and changed")
        if "it has no attention" not in str(error):
            return Verdict("refused", _short(error))
        if _attends_elsewhere(model):
            raise NotBuiltError("its shrunken form has no attention, others have") from error
        return Verdict("no attention", _short(error))
    mistakes = [
        f"alpha 1, {name}: {error:.1e}"
        for name, (inputs, expected) in dense.items()
        if (error := _error(run(model, inputs), expected, inputs)) > TOLERANCE
    ]
    restore(model)
    mistakes += [
        f"restored, {name}"
        for name, (inputs, expected) in dense.items()
        if not _equal(run(model, inputs), expected)
    ]
    sparsify(model, inputs=told)
    mistakes += _sparse_mistakes(model, {name: inputs for name, (inputs, _) in dense.items()})
    is_own = [what.endswith("(slower)") for what in report.changed.values()]
    route = "softmax" if all(is_own) else "both" if any(is_own) else "interface"
    if mistakes:
        return Verdict("wrong", "; ".join(mistakes)[:160], route)
    if report.skipped:
        return Verdict("partly", _short(_left(model, report.skipped)), route)
    return Verdict("works" if told is None else "given inputs", "", route)


def _make_sparse(
    model: PreTrainedModel, given: dict[str, Any], config: SparsityConfig, dense: dict[str, Any]
) -> tuple[SparsityReport, dict[str, Any] | None]:
    """Make a model sparse by the inputs that leave the least as it was, those of its own if any do.

    Returns:
        The report, and the inputs that ``sparsify`` was told, None if it was not.
    """
    best: tuple[int, dict[str, Any] | None] | None = None
    for inputs in itertools.chain([None, given], fuller_inputs(model)):
        expected = run(model, inputs) if inputs is not None and inputs is not given else None
        try:
            report = sparsify(model, config, inputs=inputs)
        except ValueError as error:
            if best is None and (inputs is given or "Pass inputs" not in str(error)):
                raise
            continue
        if best is None or len(report.skipped) < best[0]:
            best = len(report.skipped), inputs
            dense.pop("full", None)
            if expected is not None:
                dense["full"] = (inputs, expected)
        if not report.skipped:
            return report, inputs
        restore(model)
    told = None if best is None else best[1]
    return sparsify(model, config, inputs=told), told


def _attends_elsewhere(model: PreTrainedModel) -> bool:
    """Tell whether some layers of a model may attend, those of which a small one has too few."""
    patterns = ("layer_types", "layers_block_type", "block_types", "attn_layer_indices")
    if not any(hasattr(model.config, x) for x in patterns):
        return False
    file = type(model).__module__
    defined = [x for x in vars(sys.modules[file]).values() if isinstance(x, type)]
    return any("Attention" in x.__name__ and x.__module__ == file for x in defined)


def _left(model: PreTrainedModel, skipped: Mapping[str, str]) -> str:
    """Tell which kinds of modules stay as they were, and why the first does."""
    kinds = dict.fromkeys(type(model.get_submodule(name)).__name__ for name in skipped)
    return f"{', '.join(kinds)} ({len(skipped)}): {next(iter(skipped.values()))}"


def _equal(actual: list[Tensor], expected: list[Tensor]) -> bool:
    # Images may be summed in another order where memory is aligned in another way.
    return _error(actual, expected, {}) < 1e-5


def _sparse_mistakes(model: PreTrainedModel, given: Mapping[str, dict[str, Tensor]]) -> list[str]:
    """Return what a sparse model does wrong: against the oracle, from files, with a cache."""
    found = []
    sparse = {name: run(model, inputs) for name, inputs in given.items()}
    oracle, dense = DenseOracle(model), copy.deepcopy(model)
    restore(dense)
    for name, inputs in given.items():
        doubled = {k: _doubled(x) for k, x in inputs.items()}
        try:
            usual = run(oracle.model, doubled)
            with oracle._entmax_for_softmax():
                expected = run(oracle.model, doubled)
        except Exception:
            continue  # this model does not run in float64, or not eagerly
        if not _is_same(run(dense, inputs), usual, inputs):
            continue  # nor is it the same model then
        error = _error(sparse[name], expected, inputs)
        if error > 10 * TOLERANCE:
            found.append(f"alpha 1.5, {name}: {error:.1e}")
    # Some models do not load at this size, or come back as others, when they are dense, too.
    names = [x for x in ("plain", "full") if x in given and _comes_back(dense, given[x])]
    if names:
        loaded = _saved_and_loaded(model)
        pairs = [(x, run(loaded, given[x]), sparse[x]) for x in names]
        found += [f"loaded, {name}" for name, actual, x in pairs if not _equal(actual, x)]
    sees_all = getattr(model.config, "is_decoder", True) is False  # a cache is not for these
    if model.can_generate() and given["plain"].keys() == {"input_ids"} and not sees_all:
        options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
        try:
            both = [dense.generate(**given["plain"], use_cache=x, **options) for x in (True, False)]
            is_usual = torch.equal(*both)
        except Exception:
            is_usual = False  # the dense model does not generate from these inputs alone
        if is_usual:
            cached = model.generate(**given["plain"], use_cache=True, **options)
            uncached = model.generate(**given["plain"], use_cache=False, **options)
            if not torch.equal(cached, uncached):
                found.append("generation with a cache")
    return found


def _comes_back(model: PreTrainedModel, inputs: dict[str, Any]) -> bool:
    """Tell whether a model that is saved and loaded is the same."""
    try:
        return _equal(run(_saved_and_loaded(model), inputs), run(model, inputs))
    except Exception:
        return False  # the dense model does not load at this size


def _doubled(value: Any) -> Any:
    is_number = isinstance(value, Tensor) and value.is_floating_point()
    return value.double() if is_number else value


def _saved_and_loaded(model: PreTrainedModel) -> PreTrainedModel:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder).eval()
