"""Small random models of every architecture that is tested, and inputs for them."""

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

VOCABULARY = 61
LENGTH, SOURCE_LENGTH = 9, 11

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DECODER: dict[str, Any] = {
    **_TEXT,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_BART: dict[str, Any] = {
    **_TEXT,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 1,
}


@dataclass(frozen=True)
class Architecture:
    """How to build a model: its class, that of its configuration, and what is in that."""

    model: str
    config: str
    options: dict[str, Any]
    #: Of what kinds its attention is, in the words of SparsityConfig.
    kinds: tuple[str, ...]

    def build(self, seed: int = 0) -> PreTrainedModel:
        """Return a model in eval mode, its weights large enough for attention to matter."""
        torch.manual_seed(seed)
        config = getattr(transformers, self.config)(**self.options)
        model = getattr(transformers, self.model)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 and "embed" not in name and "norm" not in name.lower():
                    torch.nn.init.xavier_normal_(parameter, gain=1.5)
        return model

    @property
    def is_seq2seq(self) -> bool:
        return "context" in self.kinds

    @property
    def generates(self) -> bool:
        return "decoder" in self.kinds


ARCHITECTURES = {
    "marian": Architecture(
        "MarianMTModel", "MarianConfig", _BART, ("encoder", "decoder", "context")
    ),
    "bart": Architecture(
        "BartForConditionalGeneration",
        "BartConfig",
        {**_BART, "forced_eos_token_id": None},
        ("encoder", "decoder", "context"),
    ),
    "t5": Architecture(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            **_TEXT,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        ("encoder", "decoder", "context"),
    ),
    "llama": Architecture(
        "LlamaForCausalLM", "LlamaConfig", {**_DECODER, "num_key_value_heads": 2}, ("decoder",)
    ),
    "gemma2": Architecture(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **_DECODER,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "sliding_window": 5,
            "attn_logit_softcapping": 3.0,
        },
        ("decoder",),
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            **_DECODER,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        ("decoder",),
    ),
    "qwen3": Architecture(
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {**_DECODER, "num_key_value_heads": 2, "head_dim": 8},
        ("decoder",),
    ),
    "gpt2": Architecture(
        "GPT2LMHeadModel",
        "GPT2Config",
        {**_TEXT, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        ("decoder",),
    ),
    "bert": Architecture("BertForMaskedLM", "BertConfig", _DECODER, ("encoder",)),
    "modernbert": Architecture(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        {
            **_DECODER,
            "local_attention": 6,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "global_attn_every_n_layers": 2,
        },
        ("encoder",),
    ),
    "vit": Architecture(
        "ViTForImageClassification",
        "ViTConfig",
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 12,
            "patch_size": 4,
        },
        ("encoder",),
    ),
    "whisper": Architecture(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **_BART,
            "num_mel_bins": 8,
            "max_source_positions": SOURCE_LENGTH,
            "max_target_positions": 48,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        ("encoder", "decoder", "context"),
    ),
}


def tokens(batch: int, length: int, seed: int = 0) -> Tensor:
    """Random tokens, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def padding_mask(batch: int, length: int, side: str) -> Tensor:
    """Zeros for the padding: two tokens more in each sequence, none in the first."""
    mask = torch.ones(batch, length, dtype=torch.long)
    for i in range(1, batch):
        mask[i, length - 2 * i :] = 0
    return mask if side == "right" else mask.flip(-1)


def inputs_for(name: str, *, padding: str | None = None, batch: int = 3) -> dict[str, Tensor]:
    """Return arguments of a forward pass; the padding, if any, is on the side named."""
    if name == "vit":
        generator = torch.Generator().manual_seed(1)
        return {"pixel_values": torch.randn(batch, 3, 12, 12, generator=generator)}
    inputs = {}
    if name == "whisper":
        generator = torch.Generator().manual_seed(1)
        shape = (batch, 8, 2 * SOURCE_LENGTH)
        inputs["input_features"] = torch.randn(shape, generator=generator)
        inputs["decoder_input_ids"] = tokens(batch, LENGTH, seed=2)
        if padding is not None:
            inputs["decoder_attention_mask"] = padding_mask(batch, LENGTH, padding)
        return inputs
    is_seq2seq = ARCHITECTURES[name].is_seq2seq
    length = SOURCE_LENGTH if is_seq2seq else LENGTH
    inputs["input_ids"] = tokens(batch, length)
    if padding is not None:
        inputs["attention_mask"] = padding_mask(batch, length, padding)
    if is_seq2seq:
        inputs["decoder_input_ids"] = tokens(batch, LENGTH, seed=2)
        if padding is not None:
            inputs["decoder_attention_mask"] = padding_mask(batch, LENGTH, padding)
    return inputs


def real_positions(name: str, inputs: dict[str, Tensor]) -> Tensor | None:
    """Return where the output is not that of padding, ``(b, q)``; None for everywhere."""
    key = "decoder_attention_mask" if ARCHITECTURES[name].is_seq2seq else "attention_mask"
    return inputs[key].bool() if key in inputs else None
