"""Tiny instances of every model family in transformers, and one verdict on each class of them.

Settings are shrunken by their names. A family for which that gives no model that runs is told from
one that cannot be made sparse.
"""

import contextlib
import copy
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.probe import dummy_inputs, undisturbed
from support.dense_oracle import DenseOracle

VOCABULARY = 96
LENGTH = 9
LARGEST = 40_000_000  # parameters
#: Largest error, relative to the largest number of a tensor.
TOLERANCE = 2e-4

_TOKENS = r"_id$|_idx$|_index$|_token|pad_id"
_COMMON: list[tuple[str, int]] = [
    (r"feat_extract|conv_", 10**9),
    (r"attention_window|sliding_window|local_attention|block_size", 8),
    (r"vocab_size$|vocab_size_|_vocab$", VOCABULARY),
    (r"per_tok|top_?k$|num_selected", 2),
    (r"topk_group|n_group|num_expert_group", 1),
    (r"experts?$|num_local_experts|n_routed|moe_num_experts", 4),
    (r"(layers?|blocks|depth|num_stages)$|^n_layer", 2),
    (r"intermediate|ffn|d_ff|mlp_dim|inner|d_inner", 48),
    (r"max_.*position|n_positions|seq_len|n_ctx|max_len", 64),
]
_SMALL_IMAGES = [(r"image_size|img_size", 32), (r"patch_size", 8), (r"mm_tokens_per_image", 4)]
_HIDDEN = r"hidden|d_model|n_embd|embed|width|(^|_)dim$|channels$|feat_dim|filters"
#: New values of settings, by patterns of their names; the first that matches counts. What will run
#: differs from family to family, so there are several attempts, from the smallest on.
_ATTEMPTS: list[list[tuple[str, int]]] = [
    [
        *_COMMON,
        *_SMALL_IMAGES,
        (r"key_value_heads|kv_heads|num_kv|n_kv|num_key_value", 2),
        (r"(heads?|n_heads|num_heads)$", 4),
        (r"rotary_dim|rope_head_dim|rope_dim", 4),
        (r"head_dim|d_kv|d_head|head_size|kv_channels", 8),
        (r"lora_rank|q_rank|kv_rank", 16),
        (_HIDDEN, 32),
    ],
    [
        *_COMMON,
        *_SMALL_IMAGES,
        (r"key_value_heads|kv_heads|num_kv|n_kv|num_key_value", 2),
        (r"(heads?|n_heads|num_heads)$", 2),
        (r"head_dim|rotary_dim|rope|lora|rank|channels", 10**9),
        (_HIDDEN, 256),
    ],
    [*_COMMON, (_HIDDEN, 1024)],
    _COMMON,
]


def _shrunken(name: str, value: int, rules: list[tuple[str, int]]) -> int:
    if re.search(_TOKENS, name):
        return value
    return next((min(value, new) for pattern, new in rules if re.search(pattern, name)), value)


def _settings(config: PreTrainedConfig, rules: list[tuple[str, int]]) -> dict[str, Any]:
    """Return small settings for the class of a configuration, from its default ones."""
    small: dict[str, Any] = {}
    is_smallest = rules is _ATTEMPTS[0]
    for name, value in config.to_dict().items():
        part = getattr(config, name, None)
        if isinstance(part, PreTrainedConfig):
            small[name] = {**_settings(part, rules), "model_type": part.model_type}
        elif name == "pad_token_id" and value is None:
            small[name] = 0
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, int):
            small[name] = _shrunken(name, value, rules)
        elif isinstance(value, list) and value and all(type(x) is int for x in value):
            if re.search("window", name):
                small[name] = 8
            elif re.search("depth|num_layers|layers$", name):
                small[name] = [min(x, 1) for x in value]
            elif not is_smallest:
                continue
            elif re.search("hidden|embed|dims?$|channels|width", name):
                small[name] = [min(x, 16 * 2 ** min(i, 1)) for i, x in enumerate(value)]
            elif re.search("heads", name):
                small[name] = [min(x, 2) for x in value]
            elif re.search("image_size|img_size", name):
                small[name] = [32] * len(value)
        elif isinstance(value, list) and re.search("layer_types|layers_types", name):
            small[name] = _two_kinds(value)
        elif isinstance(value, Mapping) and "mrope_section" in value and is_smallest:
            small[name] = {**value, "mrope_section": [2, 1, 1]}
    _fit_tokens(small)
    small.pop("model_type", None)
    for name in ("transformers_version", "architectures", "dtype"):
        small.pop(name, None)
    return small


def _two_kinds(kinds: list[str]) -> list[str]:
    distinct = [*dict.fromkeys(kinds)]
    return (distinct * 2)[:2]


def _fit_tokens(settings: dict[str, Any]) -> None:
    """Give special tokens numbers that the vocabulary has."""
    free = iter(range(VOCABULARY - 1, 0, -1))
    for name, value in settings.items():
        if re.search(r"token_id$|token_index$|token$", name) and isinstance(value, int):
            settings[name] = value if 0 <= value < 16 else next(free)


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
    return [name for name in found if hasattr(transformers, name)]


class NotBuiltError(Exception):
    """A tiny instance of this class cannot be made from shrunken settings, or does not run."""


def build(family: str, model_class: str) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """Return a tiny model in eval mode that runs, and inputs for it."""
    reasons = []
    for rules in _ATTEMPTS:
        try:
            config_class = CONFIG_MAPPING[family]
            config = config_class(**_settings(config_class(), rules))
            model = _random_model(getattr(transformers, model_class), config)
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        for inputs in _inputs(model):
            try:
                run(model, inputs)
            except Exception as error:
                reasons.append(f"does not run, {type(error).__name__}: {error}")
            else:
                return model, inputs
    raise NotBuiltError(reasons[-1] if reasons else "no inputs are known")


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


def _inputs(model: PreTrainedModel) -> Iterator[dict[str, Tensor]]:
    """Yield inputs that may fit a model."""
    try:
        inputs: dict[str, Tensor] = dummy_inputs(model)
    except ValueError:
        return
    if inputs.keys() <= {"input_ids", "decoder_input_ids"}:
        generator = torch.Generator().manual_seed(1)
        # Small numbers and large ones are special tokens.
        inputs = {
            key: torch.randint(16, 60, (2, LENGTH - 2 * i), generator=generator)
            for i, key in enumerate(inputs)
        }
        end = getattr(model.config.get_text_config(), "eos_token_id", None)
        if isinstance(end, int):
            inputs["input_ids"][:, -1] = end  # by which some classes pick a position
        yield inputs
        yield {"input_ids": inputs["input_ids"]}
    yield inputs


def cases(inputs: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield inputs with and without padding."""
    yield "plain", inputs
    ids = inputs.get("input_ids")
    if ids is None:
        return
    for side in ("right", "left"):
        mask = torch.ones_like(ids)
        mask[-1, -3:] = 0
        yield side, {**inputs, "attention_mask": mask if side == "right" else mask.flip(-1)}


@dataclass(frozen=True)
class Verdict:
    """Outcome for one class.

    It is ``works``, ``partly`` (some attention stays as it was), ``refused``, ``wrong``, ``error``
    or ``not built``.
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


def judge(family: str, model_class: str) -> Verdict:
    """Build a class and try everything that is promised of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _judge(family, model_class)
        except NotBuiltError as error:
            return Verdict("not built", _short(error))
        except Exception as error:
            return Verdict("error", _short(f"{type(error).__name__}: {error}"))


def _short(note: object) -> str:
    return " ".join(str(note).split())[:160]


def _judge(family: str, model_class: str) -> Verdict:
    model, given = build(family, model_class)
    dense = {}
    for name, inputs in cases(given):
        with contextlib.suppress(Exception):  # some models take no mask
            dense[name] = (inputs, run(model, inputs))
    one = SparsityConfig(alpha="fixed", init_alpha=1.0)
    needs_inputs = None
    try:
        try:
            report = sparsify(model, one)
        except ValueError as error:
            if "Pass inputs" not in str(error):
                raise
            report = sparsify(model, one, inputs=given)
            needs_inputs = given
    except ValueError as error:
        for inputs, expected in dense.values():
            if not _equal(run(model, inputs), expected):
                return Verdict("wrong", "refused, and changed")
        return Verdict("refused", _short(error))
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
    sparsify(model, inputs=needs_inputs)
    mistakes += _sparse_mistakes(model, {name: inputs for name, (inputs, _) in dense.items()})
    is_own = [what.endswith("(slower)") for what in report.changed.values()]
    route = "softmax" if all(is_own) else "both" if any(is_own) else "interface"
    if mistakes:
        return Verdict("wrong", "; ".join(mistakes)[:160], route)
    if report.skipped:
        return Verdict("partly", _short(f"{len(report.skipped)} modules as they were"), route)
    return Verdict("works", "", route)


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
        doubled = {k: x.double() if x.is_floating_point() else x for k, x in inputs.items()}
        try:
            usual = run(oracle.model, doubled)
            with oracle._entmax_for_softmax():
                expected = run(oracle.model, doubled)
        except Exception:
            continue  # this model does not run in float64, or not eagerly
        if _error(run(dense, inputs), usual, inputs) > TOLERANCE:
            continue  # nor is it the same model then
        error = _error(sparse[name], expected, inputs)
        if error > 10 * TOLERANCE:
            found.append(f"alpha 1.5, {name}: {error:.1e}")
    try:
        _saved_and_loaded(dense)
    except Exception:
        pass  # this model does not load at this size when it is dense, either
    else:
        if not _equal(run(_saved_and_loaded(model), given["plain"]), sparse["plain"]):
            found.append("loaded")
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


def _saved_and_loaded(model: PreTrainedModel) -> PreTrainedModel:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder).eval()
