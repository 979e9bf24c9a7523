"""Small random models that attend in unusual ways: by code of their own, or in several parts."""

from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_TEXT: dict[str, Any] = {**_SIZES, "vocab_size": 61, "bos_token_id": 1, "eos_token_id": 2}
_VISION: dict[str, Any] = {**_SIZES, "image_size": 16, "patch_size": 8}
_GPT: dict[str, Any] = {
    "vocab_size": 61,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 61,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

#: Models that attend by code of their own: class, configuration, settings.
OWN_CODE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**_GPT, "rotary_dim": 4, "n_positions": 64}),
    "gptneo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", {**_GPT, "rotary_dim": 4, "n_ctx": 64}),
    "mpt": (
        "MptForCausalLM",
        "MptConfig",
        {"vocab_size": 61, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 32},
    ),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", _TEXT),
    "deberta": ("DebertaForMaskedLM", "DebertaConfig", _TEXT),
    "deberta-v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        {**_TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "megatron-bert": ("MegatronBertForMaskedLM", "MegatronBertConfig", _TEXT),
    "xlnet": (
        "XLNetLMHeadModel",
        "XLNetConfig",
        {"vocab_size": 61, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    ),
    "blip": (
        "BlipForConditionalGeneration",
        "BlipConfig",
        {
            "text_config": {
                **_TEXT,
                "projection_dim": 32,
                "max_position_embeddings": 32,
                "sep_token_id": 2,
            },
            "vision_config": {**_VISION, "projection_dim": 32},
        },
    ),
}

#: Models of several parts, or with other traps.
OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bigbird": (
        "BigBirdModel",
        "BigBirdConfig",
        {**_TEXT, "block_size": 4, "num_random_blocks": 1, "sep_token_id": 3},
    ),
    "bigbird-pegasus": (
        "BigBirdPegasusForConditionalGeneration",
        "BigBirdPegasusConfig",
        {**_SEQ2SEQ, "block_size": 4, "num_random_blocks": 1},
    ),
    "splinter": ("SplinterModel", "SplinterConfig", {**_TEXT, "question_token_id": 5}),
    "paligemma2": (
        "PaliGemmaForConditionalGeneration",
        "PaliGemmaConfig",
        {
            "text_config": {
                "model_type": "gemma2",
                **_TEXT,
                "num_key_value_heads": 2,
                "head_dim": 8,
            },
            "vision_config": {"model_type": "siglip_vision_model", **_VISION},
            "image_token_index": 3,
            "projection_dim": 32,
        },
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        {
            "text_config": {"model_type": "llama", **_TEXT},
            "vision_config": {"model_type": "clip_vision_model", **_VISION},
            "image_token_index": 3,
        },
    ),
    "informer": (
        "InformerForPrediction",
        "InformerConfig",
        {
            "prediction_length": 4,
            "context_length": 8,
            "lags_sequence": [1, 2],
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "num_time_features": 1,
        },
    ),
    "sam": (
        "SamModel",
        "SamConfig",
        {
            "vision_config": {
                **_SIZES,
                "image_size": 32,
                "patch_size": 8,
                "mlp_dim": 32,
                "output_channels": 16,
                "window_size": 2,
                "num_pos_feats": 8,
                "global_attn_indexes": [1],
            },
            "prompt_encoder_config": {
                "hidden_size": 16,
                "image_size": 32,
                "patch_size": 8,
                "mask_input_channels": 4,
                "num_point_embeddings": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 16,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "mlp_dim": 16,
                "iou_head_hidden_dim": 16,
            },
        },
    ),
    "reformer": (
        "ReformerModel",
        "ReformerConfig",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "attn_layers": ["local", "lsh"],
            "num_attention_heads": 2,
            "attention_head_size": 16,
            "axial_pos_embds": False,
            "is_decoder": False,
        },
    ),
    "longformer": ("LongformerModel", "LongformerConfig", {**_TEXT, "attention_window": 4}),
    # Fewer landmarks than tokens: an approximation of attention, of three softmaxes.
    "nystromformer": (
        "NystromformerModel",
        "NystromformerConfig",
        {**_TEXT, "segment_means_seq_len": 7, "num_landmarks": 1, "conv_kernel_size": 3},
    ),
    "resnet": (
        "ResNetModel",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]},
    ),
}


def build(name: str, seed: int = 0) -> PreTrainedModel:
    """Return a model in eval mode, its weights large enough for attention to matter."""
    model_class, config_class, options = {**OWN_CODE, **OTHERS}[name]
    torch.manual_seed(seed)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**options))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in key and "norm" not in key.lower():
                torch.nn.init.xavier_normal_(parameter, gain=1.5)
    return model.eval()


def inputs_for(name: str, batch: int = 2, length: int = 9, seed: int = 0) -> dict[str, Tensor]:
    """Return arguments of a forward pass of a model that takes text, with or without an image."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 61, (batch, length), generator=generator)
    if name == "blip":
        return {
            "input_ids": ids,
            "pixel_values": torch.randn(batch, 3, 16, 16, generator=generator),
        }
    if name in ("llava", "paligemma2"):
        ids[:, :4] = 3  # an image of four patches
        return {
            "input_ids": ids,
            "pixel_values": torch.randn(batch, 3, 16, 16, generator=generator),
        }
    if name == "bigbird-pegasus":
        return {"input_ids": ids, "decoder_input_ids": ids[:, :6]}
    return {"input_ids": ids}
