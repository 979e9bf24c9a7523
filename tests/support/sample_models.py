"""Small random models with a tokenizer of their own, and sentences for them."""

import functools
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from adasparse.integrations.huggingface import SparsityConfig, sparsify

SOURCE = [
    "Wo ist der alte Hund?",
    "Der kleine rote Ball rollt den langen Berg hinunter, und niemand sieht ihn.",
    "Ja.",
    "Was hat die gut-gelaunte Katze gestern gefressen?",
    "Wir wissen, was du gesehen hast.",
    "Ein Mann liest eine Zeitung.",
]
TARGET = [
    "Where is the old dog?",
    "The small red ball rolls down the long hill, and nobody sees it.",
    "Yes.",
    "What did the good-humored cat eat yesterday?",
    "We know what you saw.",
    "A man reads a newspaper.",
]


@functools.cache
def tokenizer(style: str = "metaspace") -> PreTrainedTokenizerFast:
    """A BPE tokenizer trained on the sentences; every sentence ends in ``</s>``."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    if style == "metaspace":
        bpe.pre_tokenizer = pre_tokenizers.Metaspace()
        bpe.decoder = decoders.Metaspace()
    else:
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
        bpe.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=180, special_tokens=special, show_progress=False)
    bpe.train_from_iterator(SOURCE + TARGET, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=512,
    )


_TEXT = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_DECODER = {
    **_TEXT,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
_BART = {
    **_TEXT,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 256,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": None,
}
_T5 = {**_TEXT, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
_WINDOW = {**_DECODER, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "marian": ("MarianMTModel", "MarianConfig", _BART),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**_T5, "decoder_start_token_id": 0}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**_DECODER, "num_key_value_heads": 2}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {**_TEXT, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {**_WINDOW, "attn_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**_WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "bert": ("BertForMaskedLM", "BertConfig", _DECODER),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**_DECODER, "embedding_size": 16}),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        {
            **_DECODER,
            "local_attention": 6,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "global_attn_every_n_layers": 2,
        },
    ),
}
TRANSLATION = ("marian", "bart", "t5")
DECODERS = ("llama", "gpt2", "gemma2", "gemma3")


def dense(name: str, *, seed: int = 0, **options: Any) -> PreTrainedModel:
    """A softmax model with weights large enough for attention to matter."""
    torch.manual_seed(seed)
    model_class, config_class, values = MODELS[name]
    config = getattr(transformers, config_class)(**{**values, **options})
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in key.lower() and "position" not in key:
                torch.nn.init.xavier_normal_(parameter, gain=2.0)
    return model.double()  # so that two ways to compute the same do not part by rounding


def sparse(name: str, *, seed: int = 0, **sparsity: Any) -> PreTrainedModel:
    """The same model made sparse, alpha learned from 1.6 unless told otherwise."""
    model = dense(name, seed=seed)
    sparsify(model, SparsityConfig(**{"init_alpha": 1.6, **sparsity}))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("alpha_logit"):
                parameter.add_(torch.randn(parameter.shape))
    return model
