"""Settings of small models that are set by hand, by the type of a model or of a part of one."""

from typing import Any

#: Number of tokens of every small model.
VOCABULARY = 96

_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]}
SMALL_RESNET = {"model_type": "resnet", "embedding_size": 8, "out_indices": [2, 3, 4], **_STAGES}
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
    "kimi_k25_vision": {"pos_emb_height": 8, "pos_emb_width": 8},
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
    "omdet-turbo": {
        "backbone_config": {**_SMALL_SWIN, "out_indices": [2, 3, 4]},
        "text_config": {"hidden_size": 64, "projection_dim": 64},
        "apply_layernorm_after_vision_backbone": False,
        "image_size": 64,
        "encoder_in_channels": [32, 64, 128],
        "vision_features_channels": [32, 32, 32],
        "text_projection_in_dim": 64,
        "text_projection_out_dim": 64,
        "class_embed_dim": 64,
    },
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
    "nemotron3_diarization_audio": {"num_key_value_heads": 4},
    "nemotron3_5_transcribe_asr_audio": {"num_key_value_heads": 4},
    "nemotron3_5_transcribe_word_timestamp": {"num_key_value_heads": 4},
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
    "fastspeech2_conformer_with_hifigan": {"vocoder_config": {"model_in_dim": 80}},
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
    "sam": {
        "prompt_encoder_config": {"image_embedding_size": 4},
        "vision_config": {"num_pos_feats": 16},
    },
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
        "backbone_config": {**SMALL_RESNET, "out_indices": [1, 2, 3, 4]},
        "hidden_size": 32,
        "auxiliary_in_channels": 16,
        "auxiliary_channels": 16,
    },
    "vitmatte": {
        "backbone_config": {
            "patch_size": 16,
            "image_size": 64,
            "num_channels": 4,
            "hidden_size": 32,
            "out_features": ["stage2"],
        },
        "convstream_hidden_sizes": [8, 8, 16],
        "fusion_hidden_sizes": [16, 16, 8, 8],
    },
    "xmod": {"default_language": "en_XX"},
    "zoedepth": {"backbone_config": _FOUR_LAYERS, "neck_hidden_sizes": [16, 16, 16, 16]},
}
#: Settings by the class of a model, where those of its type do not fit all classes.
BY_CLASS: dict[str, dict[str, Any]] = {
    "Blip2ForImageTextRetrieval": {"qformer_config": {"use_qformer_text_input": True}},
    "ReformerModelWithLMHead": {"is_decoder": True},
    "T5ForSequenceClassification": {"decoder_start_token_id": 0},
    "T5GemmaEncoderModel": {"is_encoder_decoder": False},
}
