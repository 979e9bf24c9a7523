"""Small settings for every model family of transformers, from its default ones.

Settings are shrunken by their names; what that gets wrong is set by hand, by the type of the model
or of the part of a model.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 96

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
_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]}
_SMALL_RESNET = {"model_type": "resnet", "embedding_size": 8, "out_indices": [2, 3, 4], **_STAGES}
_SMALL_HGNET = {
    "embedding_size": 8,
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 8, 16, 16],
    "stage_mid_channels": [8, 8, 8, 8],
    "stage_out_channels": [8, 16, 16, 16],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 16, 16],
}
_SMALL_VQGAN = {
    "base_channels": 32,
    "channel_multiplier": [1, 2],
    "latent_channels": 32,
    "embed_dim": 32,
    "num_embeddings": VOCABULARY,
    "resolution": 32,
    "num_res_blocks": 1,
}
_SMALL_EFFICIENTNET = {
    "in_channels": [32, 16, 24],
    "out_channels": [16, 24, 32],
    "kernel_sizes": [3, 3, 5],
    "strides": [1, 2, 2],
    "num_block_repeats": [1, 1, 1],
    "expand_ratios": [1, 2, 2],
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_dim": 1280,
}
#: Rotary positions in three dimensions, for heads of 8.
_MROPE = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
}
_FOUR_EXPERTS = {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16}
_FOUR_LAYERS = {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}
_DETECTOR = {
    "encoder_hidden_dim": 32,
    "d_model": 32,
    "encoder_in_channels": [16, 16, 16],
    "decoder_in_channels": [32, 32, 32],
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_queries": 16,
    "num_denoising": 0,
    "backbone_config": {"out_indices": [2, 3, 4]},
}
_LAYOUT = {
    **_DETECTOR,
    "encode_proj_layers": [2],
    "backbone_config": {"out_indices": [1, 2, 3, 4]},
    "x4_feat_dim": 8,
}
_SMALL_SWIN = {
    "model_type": "swin",
    "image_size": 64,
    "embed_dim": 16,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 2, 2, 2],
    "window_size": 4,
    "out_indices": [1, 2, 3, 4],
}
_SEGMENTER = {
    "backbone_config": _SMALL_SWIN,
    "feature_size": 32,
    "mask_feature_size": 32,
    "hidden_dim": 32,
    "num_attention_heads": 4,
}
#: Vision models of timm: their settings are those of its function that makes them.
_SMALL_TIMM = {
    "model_type": "timm_wrapper",
    "architecture": "vit_pe_core_large_patch14_336",
    "model_args": {
        "embed_dim": 64,
        "num_heads": 4,
        "img_size": [32, 32],
        "depth": 2,
        "global_pool": "",
        "use_post_transformer_norm": False,
        "init_values": 0.1,
        "ref_feat_shape": [2, 2],
    },
}
_SMALL_TIMM_POOLED = {
    **_SMALL_TIMM,
    "model_args": {"embed_dim": 64, "num_heads": 4, "img_size": [32, 32], "depth": 2},
}
_SMALL_VIBEVOICE = {"num_filters": 4, "downsampling_ratios": [2, 2], "depths": [1, 1, 1]}
#: Settings by the type of a model or of a part of one. A mapping changes a part.
BY_TYPE: dict[str, dict[str, Any]] = {
    "align_vision_model": _SMALL_EFFICIENTNET,
    "autoformer": {
        "label_length": 2,
        "moving_average": 3,
        "lags_sequence": [1, 2],
        "feature_size": 4,
    },
    "beit": {"out_indices": [1, 2, 3, 4], "num_hidden_layers": 4},
    "bamba": {"attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "chameleon": {"vocabulary_map": {"<image>": 90}},
    "chameleon_vqgan": _SMALL_VQGAN,
    "clap_audio_model": {"hidden_size": 64},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    },
    "cvt": {"depth": [1, 2, 3], "embed_dim": [8, 16, 16], "num_heads": [1, 2, 2]},
    "d_fine": _DETECTOR,
    "data2vec-vision": {"num_hidden_layers": 4, "out_indices": [0, 1, 2, 3]},
    "dbrx": {
        "attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deimv2": _DETECTOR,
    "depth_anything": {
        "backbone_config": {**_FOUR_LAYERS, "reshape_hidden_states": False},
        "reassemble_hidden_size": 32,
        "neck_hidden_sizes": [16, 16, 16, 16],
        "patch_size": 8,
    },
    "dpt": {
        "num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": [16, 16, 16, 16],
    },
    "diffusion_gemma_text": _FOUR_EXPERTS,
    "efficientnet": _SMALL_EFFICIENTNET,
    "emu3": {"vocabulary_map": {"<image>": 90}},
    "emu3_vqgan": {"base_channels": 32, "channel_multiplier": [1, 2], "hidden_size": 32},
    "ernie4_5_moe": {"moe_layer_end_index": 1},
    "esm": {"mask_token_id": 3, "pad_token_id": 1},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0}},
    "kimi_linear": {
        "num_key_value_heads": 4,
        "n_group": 1,
    },
    "bailing_hybrid": {
        "num_key_value_heads": 4,
        "n_group": 1,
        "layer_group_size": 2,
    },
    "mllama_vision_model": {"intermediate_layers_indices": [0, 1], "vision_output_dim": 96},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "kosmos-2": {"latent_query_num": 4},
    "llama4_vision_model": {
        "intermediate_size": 128,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
        "vision_output_dim": 32,
    },
    "lw_detr_vit": {"image_size": 64, "patch_size": 8, "num_windows": 4, "num_windows_side": 2},
    "mask2former": _SEGMENTER,
    "oneformer": _SEGMENTER,
    "maskformer": {
        "backbone_config": _SMALL_SWIN,
        "fpn_feature_size": 32,
        "mask_feature_size": 32,
    },
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "mimi_decoder": {"upsample_groups": 32},
    "pp_doclayout_v2": _LAYOUT,
    "pp_doclayout_v3": _LAYOUT,
    "pp_doclayout_v4": _LAYOUT,
    "pvt": {"image_size": 64},
    "chmv2": {
        "backbone_config": _FOUR_LAYERS,
        "post_process_channels": [16, 16, 16, 16],
        "patch_size": 8,
    },
    "depth_pro": {
        "patch_size": 32,
        "intermediate_hook_ids": [1, 0],
        "intermediate_feature_dims": [16, 16],
        "scaled_images_ratios": [0.5, 1],
        "scaled_images_overlap_ratios": [0.0, 0.5],
        "scaled_images_feature_dims": [16, 16],
        "merge_padding_value": 1,
    },
    "blip-2": {"image_token_index": 90, "num_query_tokens": 4},
    "instructblip": {"image_token_index": 90, "num_query_tokens": 4},
    "instructblipvideo": {"video_token_index": 90, "num_query_tokens": 4},
    "vibevoice_acoustic_tokenizer": _SMALL_VIBEVOICE,
    "vibevoice_acoustic_tokenizer_encoder": _SMALL_VIBEVOICE,
    "vibevoice_acoustic_tokenizer_decoder": _SMALL_VIBEVOICE,
    "vibevoice_asr": {"acoustic_tokenizer_chunk_size": 64},
    "muse_spark_audio": {
        "num_hidden_layers": 4,
        "hidden_sizes": [8, 8, 16, 16],
        "patch_sizes": [4, 2, 2, 2],
        "depths": [1, 1, 1, 1],
    },
    "tipsv2_dpt": {"backbone_config": _FOUR_LAYERS, "neck_hidden_sizes": [16, 16, 16, 16]},
    "prompt_depth_anything": {
        "backbone_config": {**_FOUR_LAYERS, "reshape_hidden_states": False},
        "reassemble_hidden_size": 32,
        "neck_hidden_sizes": [16, 16, 16, 16],
        "patch_size": 8,
    },
    "vjepa2": {"crop_size": 32, "frames_per_clip": 4, "pred_hidden_size": 32},
    "videoprism_vision_model": {"tubelet_size": [1, 8, 8], "num_frames": 2},
    "seggpt": {"image_size": [64, 32]},
    "shieldgemma2": {"yes_token_index": 20, "no_token_index": 21},
    "molmo2_adapter": {"vision_feature_layer": [1, 0], "text_hidden_size": 32},
    "molmo2_text": {"rope_scaling_layers": [0, 1]},
    "molmo2_vision": {"num_position_embeddings": 16},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "moonshine_streaming_encoder": {"sliding_windows": [[8, 4], [8, 0]]},
    "gemma3n_text": {
        "intermediate_size": [48, 48],
        "activation_sparsity_pattern": [0.0, 0.0],
        "layer_types": ["sliding_attention", "full_attention"],
        "num_kv_shared_layers": 0,
    },
    "gemma3n_audio": {"conf_num_attention_heads": 4, "sscp_conv_channel_size": [8, 4]},
    "muse_glimmer_assistant": {"target_layer_ids": [1]},
    "lw_detr": {
        "projector_scale_factors": [1.0],
        "num_feature_levels": 1,
        "projector_in_channels": [32],
    },
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 8}},
    "fun_asr_nano_encoder": {"num_timestamp_prediction_layers": 1},
    "splinter": {"question_token_id": 70},
    "longformer": {"sep_token_id": 71},
    "glm4v_text": _MROPE,
    "glm_image_text": _MROPE,
    "glm_ocr_text": _MROPE,
    "hunyuan_vl_text": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "mrope_section": [1, 1, 1, 1],
        }
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "qwen4_exp_text": {
        "layer_types": ["linear_attention", "full_attention"],
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "glm5_next_text": {"num_key_value_heads": 4, "index_kpool": 2, "index_topk": 4},
    "sam2_hiera_det_model": {
        "hidden_size": 16,
        "embed_dim_per_stage": [16, 32, 64, 128],
        "blocks_per_stage": [1, 2, 1, 1],
        "num_attention_heads_per_stage": [1, 2, 2, 2],
        "window_size_per_stage": [8, 4, 4, 4],
        "global_attention_blocks": [2],
        "image_size": [64, 64],
    },
    "sam2_vision_model": {
        "backbone_channel_list": [128, 64, 32, 16],
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    },
    "sam2": {"prompt_encoder_config": {"image_size": 64, "patch_size": 16}},
    "sapiens2_head": {
        "upsample_out_channels": [16],
        "upsample_kernel_sizes": [4],
        "conv_out_channels": [16],
        "conv_kernel_sizes": [1],
        "scale_conv_out_channels": [16],
        "scale_conv_kernel_sizes": [1],
        "scale_final_input_size": 64,
        "scale_final_hidden_sizes": [8, 8],
    },
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "granite4_vision": {
        "downsample_rate": "1/2",
        "deepstack_layer_map": [[-2, 0]],
        "spatial_target_layers": [1],
        "image_grid_pinpoints": [[32, 32]],
    },
    "step3p5": {"sliding_window": 4},
    "hiera": {"decoder_hidden_size": 32, "decoder_depth": 1, "decoder_num_heads": 2},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "n_mamba_heads": 2,
    },
    "zamba2": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "hybrid_layer_ids": [1, 3],
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
    },
    "llava_next": {"image_grid_pinpoints": [[32, 32]]},
    "llava_next_video": {"image_grid_pinpoints": [[32, 32]]},
    "llava_onevision": {"image_grid_pinpoints": [[32, 32]]},
    "glpn": {"hidden_sizes": [8, 16, 16, 16], "decoder_hidden_size": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "window_size": 4},
    "granite_speech5_encoder": {"subsample_layers": [0]},
    "hgnet_v2": _SMALL_HGNET,
    "lxmert": {"visual_feat_dim": 16, "l_layers": 1, "x_layers": 1, "r_layers": 1},
    "perceiver": {
        "num_latents": 8,
        "d_latents": 32,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 1,
    },
    "perception_lm": {"vision_config": _SMALL_TIMM},
    "pe_video_encoder": {"vision_config": _SMALL_TIMM_POOLED},
    "rt_detr": _DETECTOR,
    "rt_detr_v2": _DETECTOR,
    "rt_detr_resnet": {"embedding_size": 8, **_STAGES},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "timm_backbone": {"backbone": "resnet18"},
    "upernet": {
        "backbone_config": {**_SMALL_RESNET, "out_indices": [1, 2, 3, 4]},
        "hidden_size": 32,
        "auxiliary_in_channels": 16,
        "auxiliary_channels": 16,
    },
    "xmod": {"default_language": "en_XX"},
    "zoedepth": {"backbone_config": _FOUR_LAYERS, "neck_hidden_sizes": [16, 16, 16, 16]},
}
#: Settings by the class of a model, where those of its type do not fit all classes.
BY_CLASS: dict[str, dict[str, Any]] = {
    "ReformerModelWithLMHead": {"is_decoder": True},
    "T5ForSequenceClassification": {"decoder_start_token_id": 0},
    "T5GemmaEncoderModel": {"is_encoder_decoder": False},
}
#: Settings that follow from others.
_DERIVED = ("transformers_version", "architectures", "dtype", "per_layer_config", "model_type")


def small_config(family: str, rules: Rules, model_class: str = "") -> PreTrainedConfig:
    """Return a small configuration of a family by the rules of one attempt."""
    config_class: Any = CONFIG_MAPPING[family]
    settings = _settings(_default(config_class, family), rules)
    return config_class(**{**settings, **BY_CLASS.get(model_class, {})})  # type: ignore[no-any-return]


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
        return _SMALL_RESNET
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
