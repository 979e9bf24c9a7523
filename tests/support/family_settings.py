"""Small settings for every model family of transformers, from its default ones.

Settings are shrunken by their names; what that gets wrong is set by hand, by the type of the model
or of the part of a model.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from support.family_by_hand import BY_CLASS, BY_TYPE, SMALL_RESNET, VOCABULARY

Rules = list[tuple[str, int]]

_TOKENS = r"_id$|_idx$|_index$|(?<!per)_token(_|$)|pad_id"
_COMMON: Rules = [
    (r"feat_extract|conv_|num_encoder_blocks", 10**9),
    (r"attention_window|sliding_window|local_attention|block_size", 8),
    (r"vocab_size$|vocab_size_|_vocab$", VOCABULARY),
    (r"codebook_size", 64),
    (r"per_tok|top_?k$|num_selected|moe_k$|top_k_experts", 2),
    (r"topk_group|n_group|num_expert_group", 1),
    (r"experts?$|num_local_experts|n_routed|moe_num_experts", 4),
    (r"first_k_dense", 1),
    (r"(layers?|blocks|depth|num_stages)$|^n_layer", 2),
    (r"intermediate|ffn|d_ff|mlp_dim|inner|d_inner", 48),
    (r"max_.*position|n_positions|seq_len|n_ctx|max_len|context_size|max_ep_len", 64),
    (r"num_queries|num_denoising", 16),
    (r"labels$", 8),
]
_SMALL_IMAGES: Rules = [
    (r"image_size|img_size|^resolution$", 32),
    (r"patch_size", 8),
    (r"mm_tokens_per_image", 4),
]
_STATE_SPACE: Rules = [
    (r"mamba.*(n_heads|num_heads)$", 8),
    (r"mamba.*(d_head|head_dim)", 8),
    (r"d_state|state_size|ssm_state", 8),
    (r"mamba.*chunk|chunk_size", 8),
    (r"dt_rank", 4),
]
_HIDDEN = r"hidden|d_model|n_embd|embed|width|(^|_)dim$|channels$|feat_dim|filters"
_KEY_VALUE_HEADS = r"key_value_heads|kv_heads|num_kv|n_kv|num_key_value"


def _smallest(*, key_value_heads: int, rope: int) -> Rules:
    return [
        *_COMMON,
        *_SMALL_IMAGES,
        *_STATE_SPACE,
        (_KEY_VALUE_HEADS, key_value_heads),
        (r"(heads?|n_heads|num_heads)$", 4),
        (r"rotary_dim|rope_head_dim|rope_dim", rope),
        (r"head_dim|d_kv|d_head|head_size|kv_channels", 8),
        (r"lora_rank|q_rank|kv_rank", 16),
        (r"upsample_groups", 32),
        (_HIDDEN, 32),
    ]


#: New values of settings, by patterns of their names; the first that matches counts. What will run
#: differs from family to family, so there are several attempts, from the smallest on.
ATTEMPTS: list[Rules] = [
    _smallest(key_value_heads=2, rope=4),
    _smallest(key_value_heads=4, rope=8),
    [
        *_COMMON,
        *_SMALL_IMAGES,
        (_KEY_VALUE_HEADS, 2),
        (r"(heads?|n_heads|num_heads)$", 2),
        (r"head_dim|rotary_dim|rope|lora|rank|channels", 10**9),
        (_HIDDEN, 256),
    ],
    [*_COMMON, (_HIDDEN, 1024)],
    _COMMON,
]
#: Attempts in which sizes in lists shrink, too.
_SMALLEST = ATTEMPTS[:2]

#: Values for what defaults leave open and a model needs.
_MISSING = {
    "pad_token_id": 0,
    "head_dim": 8,
    "vocab_size": VOCABULARY,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "image_token_id": 90,
    "prediction_length": 4,
    "context_length": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_attention_heads": 4,
}
#: Settings that follow from others.
_DERIVED = ("transformers_version", "architectures", "dtype", "per_layer_config", "model_type")


def small_config(family: str, rules: Rules, model_class: str = "") -> PreTrainedConfig:
    """Return a small configuration of a family by the rules of one attempt."""
    config_class: Any = CONFIG_MAPPING[family]
    settings = _settings(_default(config_class, family), rules)
    return config_class(**_changed(settings, BY_CLASS.get(model_class, {})))  # type: ignore[no-any-return]


def _default(config_class: Any, family: str) -> PreTrainedConfig:
    try:
        return config_class()  # type: ignore[no-any-return]
    except Exception:  # the defaults of some contradict each other
        return config_class(**BY_TYPE.get(family, {}))  # type: ignore[no-any-return]


def _settings(config: PreTrainedConfig, rules: Rules) -> dict[str, Any]:
    """Return small settings for the class of a configuration."""
    small = dict(_shrunken_settings(config, rules))
    _fit_tokens(small)
    for name in _DERIVED:
        small.pop(name, None)
    return _changed(small, BY_TYPE.get(config.model_type, {}))


def _changed(settings: dict[str, Any], by_hand: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in by_hand.items():
        is_part = isinstance(value, Mapping) and isinstance(settings.get(name), dict)
        is_whole = not is_part or "rope_type" in str(value) or "model_type" in value
        settings[name] = value if is_whole else {**settings[name], **value}
    return settings


def _shrunken_settings(config: PreTrainedConfig, rules: Rules) -> Iterator[tuple[str, Any]]:
    num_layers = _number_of_layers(config)
    unusual = _unusual_switches(config)
    for name, value in config.to_dict().items():
        part = vars(config).get(name)
        if isinstance(part, PreTrainedConfig):
            yield name, _small_part(part, rules)
        elif isinstance(value, bool):
            if name in unusual:
                yield name, value
        elif value is None:
            if name in _MISSING and hasattr(type(config), name):
                yield name, _MISSING[name]
        elif isinstance(value, int):
            yield name, _shrunken(name, value, rules)
        elif isinstance(value, list) and value:
            small = _small_list(name, value, rules, num_layers)
            if small is not None:
                yield name, small
        elif isinstance(value, Mapping) and "mrope_section" in value and rules in _SMALLEST:
            yield name, {**value, "mrope_section": [2, 1, 1]}


def _unusual_switches(config: PreTrainedConfig) -> set[str]:
    """Return the switches that differ from the defaults of their class, as in parts of models."""
    try:
        default = vars(type(config)())
    except Exception:  # the defaults of some contradict each other
        return set()
    given = {name: x for name, x in vars(config).items() if isinstance(x, bool)}
    return {name for name, x in given.items() if default.get(name) is not x}


def _small_part(part: PreTrainedConfig, rules: Rules) -> dict[str, Any]:
    if part.model_type == "timm_backbone":  # an extra package, with convolutions
        return SMALL_RESNET
    return {**_settings(part, rules), "model_type": part.model_type}


def _number_of_layers(config: PreTrainedConfig) -> int:
    for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers"):
        value = vars(config).get(name)
        if isinstance(value, int):
            return value
    return 0


def _shrunken(name: str, value: int, rules: Rules) -> int:
    if re.search(_TOKENS, name):
        return value
    return next((min(value, new) for pattern, new in rules if re.search(pattern, name)), value)


def _small_list(name: str, value: list[Any], rules: Rules, num_layers: int) -> list[Any] | Any:
    if all(isinstance(x, str) for x in value):
        is_by_layer = len(value) == num_layers or re.search("layer_types|layers_types", name)
        return _two_kinds(value) if is_by_layer and len(value) > 2 else None
    if len(value) == num_layers > 2 and all(type(x) in (int, float) for x in value):
        return value[:2]
    if not all(type(x) is int for x in value):
        return None
    if re.search("attention_window", name):
        return 8
    if re.search("window", name):
        return [min(x, 8) for x in value]
    if re.search("depth|num_layers|layers$", name):
        return [min(x, 1) for x in value]
    if rules not in _SMALLEST:
        return None
    if re.search("hidden|embed|dims?$|channels|width|intermediate", name):
        return [min(x, 16 * 2 ** min(i, 1)) for i, x in enumerate(value)]
    if re.search("heads", name):
        return [min(x, 2) for x in value]
    return [32] * len(value) if re.search("image_size|img_size", name) else None


def _two_kinds(kinds: list[str]) -> list[str]:
    distinct = [*dict.fromkeys(kinds)]
    return (distinct * 2)[:2]


def _fit_tokens(settings: dict[str, Any]) -> None:
    """Give special tokens numbers that the vocabulary has."""
    free = iter(range(VOCABULARY - 1, 0, -1))
    for name, value in settings.items():
        if re.search(r"token_id$|token_index$|token$", name) and isinstance(value, int):
            settings[name] = value if 0 <= value < 16 else next(free)
