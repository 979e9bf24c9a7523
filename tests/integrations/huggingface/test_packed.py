"""Packed rows, sinks and soft caps of models, and the name that transformers knows."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DataCollatorWithFlattening,
    FlintConfig,
    Gemma2Config,
    GptOssConfig,
    GraniteMoeSWAConfig,
    GraniteSWAConfig,
    LlamaConfig,
    MiMoV2FlashConfig,
    MistralConfig,
)

from adasparse import SparsityConfig, sparsify
from adasparse.integrations import packing
from adasparse.integrations.calls import watching
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.packing import PackedMask
from support.architectures import padding_mask
from support.dense_oracle import DenseOracle

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
LENGTHS = [5, 1, 17, 40]


def gpt_oss():
    config = GptOssConfig(
        **SIZES,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=6,
        attn_implementation="eager",
    )
    return build(config)


def build(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                x.mul_(20)  # scores that differ
            elif "sinks" in name:
                x.normal_()
    return model.eval()


def llama():
    return build(LlamaConfig(**SIZES))


def mistral():
    return build(MistralConfig(**SIZES, sliding_window=7))


def gemma2():
    return build(Gemma2Config(**SIZES, sliding_window=7, attn_logit_softcapping=3.0))


TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager"}


def granite_swa():
    return build(GraniteSWAConfig(**SIZES, **TOKENS, sliding_window=6))


def granitemoe_swa():
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    return build(GraniteMoeSWAConfig(**SIZES, **TOKENS, **experts, sliding_window=6))


def flint():
    return build(FlintConfig(**SIZES, **TOKENS, sliding_window=6))


def mimo():
    sliding = {"head_dim": 8, "v_head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2}
    sliding = {f"swa_{name}": size for name, size in sliding.items()}
    experts = {"n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
    sizes = {**SIZES, **TOKENS, **sliding, **experts, "v_head_dim": 8}
    return build(MiMoV2FlashConfig(**sizes, sliding_window=6))


MODELS = {"llama": llama, "mistral": mistral, "gemma2": gemma2, "gpt_oss": gpt_oss}
models = pytest.mark.parametrize("make", MODELS.values(), ids=list(MODELS))


@pytest.fixture
def texts():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(1, 64, (n,), generator=generator).tolist() for n in LENGTHS]


def calls_of(model, **inputs):
    found = []
    with watching(found.append):
        output = model(**inputs)
    return output, found


def flattened(texts, **options):
    collate = DataCollatorWithFlattening(return_tensors="pt", **options)
    batch = dict(collate([{"input_ids": text} for text in texts]))
    del batch["labels"]
    return batch


@pytest.mark.parametrize("make", [gpt_oss, granite_swa, granitemoe_swa, flint, mimo])
def test_sinks_at_alpha_1_are_those_of_the_eager_implementation(make, texts):
    tokens = torch.tensor([texts[3], texts[3][::-1]])
    model = make()
    wanted = model(tokens).logits
    with_sinks = [name for name, _ in model.named_parameters() if name.endswith("sinks")]
    report = sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    assert "softmax" not in str(report)
    found, calls = calls_of(model, input_ids=tokens)
    assert len(calls) == 2
    assert sum(call.sinks is not None for call in calls) == len(with_sinks) >= 1
    assert (found.logits - wanted).abs().max() < 1e-5


@models
@pytest.mark.parametrize("padding", [None, "right", "left"])
def test_agrees_with_the_oracle_forward_and_backward(make, padding, texts):
    model = make()
    sparsify(model, SparsityConfig(init_alpha=1.3))
    oracle = DenseOracle(model)
    inputs = {"input_ids": torch.tensor([texts[2], texts[2][::-1]])}
    real = torch.ones(2, 17, dtype=torch.bool)
    if padding is not None:
        inputs["attention_mask"] = padding_mask(2, 17, padding)
        real = inputs["attention_mask"].bool()
    logits, expected = model(**inputs).logits[real], oracle(**inputs).logits[real]
    assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max()
    logits.square().mean().backward()
    expected.square().mean().backward()
    for key, heads in sparse_heads(model).items():
        share = heads.alpha.alpha_logit.detach().sigmoid().double()
        wanted = oracle.alphas[key].grad * share * (1 - share)
        error = (heads.alpha.alpha_logit.grad - wanted).abs().max()
        assert error <= 1e-3 * wanted.abs().max() + 1e-9, key
        sinks = getattr(model.get_submodule(key), "sinks", None)
        if sinks is not None:
            wanted = oracle.model.get_submodule(key).sinks.grad
            assert (sinks.grad - wanted).abs().max() <= 1e-3 * wanted.abs().max() + 1e-9, key


def test_sinks_and_exponents_of_gpt_oss_are_trained(texts):
    model = gpt_oss()
    sparsify(model, SparsityConfig(init_alpha=1.5))
    tokens = torch.tensor([texts[3]])
    model(tokens, labels=tokens).loss.backward()
    trained = {
        name: x.grad for name, x in model.named_parameters() if "sinks" in name or "entmax" in name
    }
    assert len(trained) == 4
    assert all(x is not None and x.isfinite().all() and x.any() for x in trained.values())


def test_weights_of_gpt_oss_leave_out_the_sink(texts):
    model = gpt_oss()
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    weights = model(torch.tensor([texts[3]]), output_attentions=True).attentions[0]
    assert (weights.sum(-1) < 1 + 1e-6).all() and (weights.sum(-1) < 0.9).any()


def test_softcap_goes_through_the_fused_kernel(texts, monkeypatch):
    model = gemma2()
    tokens = torch.tensor([texts[3]])
    wanted = model(tokens).logits
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))

    def no_weights(self):
        raise AssertionError("the matrix of weights was built")

    monkeypatch.setattr("adasparse.integrations.calls.AttentionCall.weights", no_weights)
    torch.testing.assert_close(model(tokens).logits, wanted, rtol=1e-4, atol=1e-5)


@models
@pytest.mark.parametrize("gives_offsets", [False, True])
def test_a_packed_row_is_its_sequences(make, gives_offsets, texts, monkeypatch):
    model = make()
    sparsify(model, SparsityConfig(init_alpha=1.3))
    batch = flattened(texts, return_flash_attn_kwargs=gives_offsets)

    def no_matrix(*args, **kwargs):
        raise AssertionError("the mask of tokens by tokens was built")

    monkeypatch.setattr(packing, "packed_matrix", no_matrix)
    found, calls = calls_of(model, **batch)
    assert all(isinstance(call.mask, PackedMask) for call in calls) and len(calls) == 2
    alone = torch.cat([model(torch.tensor([text])).logits[0] for text in texts])
    torch.testing.assert_close(found.logits[0], alone, rtol=1e-4, atol=1e-5)


def test_offsets_alone_will_do(texts):
    """Positions of this model do not reach its mask: rotations differ, sequences do not mix."""
    model = llama()
    sparsify(model, SparsityConfig(init_alpha=1.3))
    batch = flattened(texts, return_flash_attn_kwargs=True, return_position_ids=False)
    _, calls = calls_of(model, **batch)
    first = calls[0]
    assert first.mask.offsets.tolist() == [0, 5, 6, 23, 63]
    assert first.mask.longest == 40
    assert not (first.weights()[0].amax(0) > 0)[~first.mask.matrix()[0, 0]].any()


@models
def test_gradients_of_a_packed_row_are_those_of_its_sequences(make, texts):
    model = make()
    sparsify(model, SparsityConfig(init_alpha=1.3))
    names = [name for name, _ in model.named_parameters() if "self_attn" in name]
    parameters = [model.get_parameter(name) for name in names]
    packed = model(**flattened(texts)).logits.square().sum()
    alone = sum(model(torch.tensor([text])).logits.square().sum() for text in texts)
    for a, b in zip(
        torch.autograd.grad(packed, parameters),
        torch.autograd.grad(alone, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * b.abs().max().item() + 1e-6)


def test_weights_of_a_packed_row_are_whole(texts):
    model = mistral()
    sparsify(model, SparsityConfig(init_alpha=1.3))
    weights = model(**flattened(texts), output_attentions=True).attentions[1]
    alone = model(torch.tensor([texts[2]]), output_attentions=True).attentions[1]
    torch.testing.assert_close(weights[:, :, 6:23, 6:23], alone, rtol=1e-4, atol=1e-5)
    assert not weights[:, :, 6:23, :6].any()


def test_modules_that_stay_dense_read_the_mask_of_a_packed_row(texts):
    model = llama()
    batch = {**flattened(texts), "use_cache": False}  # with a cache, transformers mixes sequences
    wanted = model(**batch).logits
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0, modules="model.layers.0.*"))
    torch.testing.assert_close(model(**batch).logits, wanted, rtol=1e-4, atol=1e-5)


def test_a_packed_mask_is_the_matrix_it_stands_for():
    mask = PackedMask(torch.tensor([0, 2, 5]), 5, is_causal=True, window=(1, None))
    expected = torch.zeros(5, 5, dtype=torch.bool)
    expected[[0, 1, 1, 2, 3, 3, 4, 4], [0, 0, 1, 2, 2, 3, 3, 4]] = True
    assert torch.equal(mask.matrix()[0, 0], expected)
    assert torch.equal(mask[0, 0], expected)
    assert type(mask[:, :, 1:]) is torch.Tensor
    assert torch.equal(~mask, ~expected[None, None])
    assert torch.equal(torch.where(mask, 1.0, 0.0)[0, 0], expected.float())
    assert mask.shape == (1, 1, 5, 5) and mask.dtype == torch.bool
    assert repr(mask) == "PackedMask(2 sequences, 5 tokens)"


def test_the_name_for_from_pretrained_says_what_to_call(tmp_path, texts):
    dense = llama()
    dense.save_pretrained(tmp_path)
    named = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="adasparse").eval()
    tokens = torch.tensor([texts[2]])
    with pytest.raises(RuntimeError, match=r"call adasparse\.sparsify\(model\)"):
        named(tokens)
    sparsify(named)
    sparsify(dense)
    assert torch.equal(named(tokens).logits, dense(tokens).logits)
