"""Generation with packed keys: the tokens of transformers' own cache."""

import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    MistralConfig,
    MistralForCausalLM,
)

from adasparse import SparsityConfig, sparsify
from adasparse.integrations.calls import packed_of, watching
from adasparse.integrations.huggingface import PackedCache
from adasparse.longcontext.config import LongContextConfig
from adasparse.longcontext.model import LongContextForCausalLM
from support.helpers import randn

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.3, eos_token_id=None)).eval()
    sparsify(model, SparsityConfig(init_alpha=1.5))
    return model


@pytest.fixture(scope="module")
def prompt():
    return torch.randint(0, 50, (2, 700), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"num_beams": 3},
        {"do_sample": True, "num_return_sequences": 2},
        {"prompt_lookup_num_tokens": 3},
    ],
    ids=str,
)
def test_generates_the_same_tokens(llama, prompt, choice):
    tokens = prompt[:1] if "prompt_lookup_num_tokens" in choice else prompt
    found = []
    for cache in (DynamicCache(config=llama.config), PackedCache(llama.config)):
        torch.manual_seed(7)
        found.append(llama.generate(tokens, max_new_tokens=12, past_key_values=cache, **choice))
    assert torch.equal(*found)


def test_padding_changes_nothing(llama, prompt):
    mask = torch.ones_like(prompt)
    mask[0, :100] = 0
    found = [
        llama.generate(prompt, attention_mask=mask, max_new_tokens=8, past_key_values=cache)
        for cache in (DynamicCache(config=llama.config), PackedCache(llama.config))
    ]
    assert torch.equal(*found)


def test_attention_gets_the_packed_keys(llama, prompt):
    packed = []
    with watching(lambda call: packed.append(packed_of(call.key) is not call.key)):
        llama.generate(prompt, max_new_tokens=2, past_key_values=PackedCache(llama.config))
    assert packed and all(packed)


def test_logits_have_the_same_bits(llama, prompt):
    logits = []
    with torch.inference_mode():
        for cache in (DynamicCache(config=llama.config), PackedCache(llama.config)):
            llama(prompt, past_key_values=cache)
            logits.append(llama(prompt[:, :3], past_key_values=cache).logits)
    assert torch.equal(*logits)


def test_sliding_windows_keep_the_cache_of_transformers(prompt):
    torch.manual_seed(0)
    config = MistralConfig(**SIZES, sliding_window=64, initializer_range=0.3, eos_token_id=None)
    model = MistralForCausalLM(config).eval()
    sparsify(model, SparsityConfig(init_alpha=1.5))
    found = [
        model.generate(prompt, max_new_tokens=8, past_key_values=cache)
        for cache in (DynamicCache(config=config), PackedCache(config))
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("positions", ["rope", "nape"])
def test_long_context_models_generate_the_same_tokens(positions, prompt):
    torch.manual_seed(0)
    config = LongContextConfig(
        vocab_size=50, hidden_size=32, num_attention_heads=2, num_hidden_layers=2,
        positions=positions, attention="entmax",
    )  # fmt: skip
    model = LongContextForCausalLM(config).eval()
    packed = []
    with watching(lambda call: packed.append(packed_of(call.key) is not call.key)):
        found = model.generate(prompt, max_new_tokens=8, past_key_values=PackedCache(config))
    assert torch.equal(found, model.generate(prompt, max_new_tokens=8))
    assert all(packed)


def test_encoders_and_decoders_take_packed_keys():
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=40, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, init_std=0.5,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, max_position_embeddings=1024,
        forced_eos_token_id=None, num_beams=4, max_length=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    sparsify(model, SparsityConfig(init_alpha=1.5))
    source = torch.randint(2, 40, (2, 600))
    caches = [EncoderDecoderCache(kind(), kind()) for kind in (DynamicCache, PackedCache)]
    found = [
        model.generate(source, num_beams=3, max_new_tokens=10, past_key_values=cache)
        for cache in caches
    ]
    assert torch.equal(*found)


def filled(n=40):
    cache = PackedCache()
    key, value = randn((3, 2, n, 8)), randn((3, 2, n, 8), seed=1)
    cache.update(key[:, :, : n // 2], value[:, :, : n // 2], 0)
    cache.update(key[:, :, n // 2 :], value[:, :, n // 2 :], 0)
    return cache, key, value


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda cache: cache.crop(-7), lambda x: x[:, :, :-7]),
        (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 0])), lambda x: x[[2, 0, 0]]),
        (lambda cache: cache.batch_repeat_interleave(2), lambda x: x.repeat_interleave(2, 0)),
        (lambda cache: cache.batch_select_indices(torch.tensor([1])), lambda x: x[[1]]),
        (
            lambda cache: cache.batch_select_indices(torch.tensor([True, False, True])),
            lambda x: x[[0, 2]],
        ),
    ],
)
def test_changes_are_those_of_tensors(change, expected):
    cache, key, value = filled()
    change(cache)
    (layer,) = cache.layers
    assert torch.equal(layer.keys, expected(key))
    assert torch.equal(layer.values, expected(value))
    assert torch.equal(packed_of(layer.keys).to_dense(), expected(key))
    assert cache.get_seq_length() == expected(key).shape[2]


def test_an_empty_cache_has_no_length():
    cache, *_ = filled()
    cache.reset()
    assert cache.get_seq_length() == 0
    assert PackedCache().get_seq_length() == 0


def test_an_old_tensor_does_not_speak_for_new_keys():
    cache, *_ = filled()
    old = cache.layers[0].keys
    cache.crop(-1)
    assert packed_of(old) is old


def test_a_positive_crop_is_refused():
    cache, *_ = filled()
    with pytest.raises(ValueError, match="got 5"):
        cache.crop(5)
