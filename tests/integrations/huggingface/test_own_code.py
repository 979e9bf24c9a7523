"""Models that attend by code of their own are sparse through the softmax that they call."""

import copy
import pickle

import pytest
import torch

from adasparse.integrations.huggingface import SparsityConfig, inspect_heads, restore, sparsify
from adasparse.integrations.huggingface.heads import sparse_heads
from support.architectures import padding_mask
from support.dense_oracle import DenseOracle
from support.unusual import OWN_CODE, build, inputs_for

pytestmark = pytest.mark.parametrize("name", OWN_CODE)


def spread_alphas(model):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for heads in sparse_heads(model).values():
            heads.alpha.alpha_logit.normal_(generator=generator)


@pytest.mark.parametrize("padding", [None, "right", "left"])
def test_agrees_with_the_oracle_forward_and_backward(name, padding):
    model = build(name)
    report = sparsify(model)
    assert all("through its softmax (slower)" in what for what in report.changed.values())
    assert not report.skipped
    spread_alphas(model)
    oracle = DenseOracle(model)
    inputs = inputs_for(name)
    real = torch.ones(2, 9, dtype=torch.bool)
    if padding is not None:
        inputs["attention_mask"] = padding_mask(2, 9, padding)
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


def test_one_is_softmax_and_restoring_is_exact(name):
    model, inputs = build(name), inputs_for(name)
    expected = model(**inputs).logits
    classes = [type(x) for x in model.modules()]
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    assert torch.allclose(model(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
    restore(model)
    assert torch.equal(model(**inputs).logits, expected)
    assert [type(x) for x in model.modules()] == classes
    sparsify(model)  # and again


def test_trained_saved_and_loaded(name, tmp_path):
    model, inputs = build(name), inputs_for(name)
    sparsify(model)
    before = {key: heads.exponents().detach().clone() for key, heads in sparse_heads(model).items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()(**inputs, labels=inputs["input_ids"]).loss.backward()
    optimizer.step()
    model.eval()
    after = {key: heads.exponents() for key, heads in sparse_heads(model).items()}
    assert all((after[key] != before[key]).any() for key in before)
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert torch.equal(loaded(**inputs).logits, expected)
    with pytest.raises(ValueError, match='attn_implementation="adasparse-softmax"'):
        model.dense_class.from_pretrained(tmp_path)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(**inputs).logits, expected)
    restore(loaded)
    assert not torch.equal(loaded(**inputs).logits, expected)


def test_density_is_that_of_the_weights(name):
    model, inputs = build(name), inputs_for(name)
    report = sparsify(model, SparsityConfig(init_alpha=1.9))
    heads = inspect_heads(model, inputs)
    assert heads.keys() == report.changed.keys()
    assert all((x.density > 0).all() and (x.density <= 1).all() for x in heads.values())
    assert any((x.density < 1).any() for x in heads.values())


def test_caches_change_nothing(name):
    model = build(name)
    if not model.can_generate() or name in ("xlnet", "blip"):
        pytest.skip("generates in a way of its own")
    sparsify(model, SparsityConfig(init_alpha=1.6))
    prompt = inputs_for(name)["input_ids"]
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, use_cache=False, **options)
    assert torch.equal(model.generate(prompt, **options), expected)


def test_a_chunk_of_as_many_tokens_as_heads_is_read(name):
    """Behind a cache it used to be refused: its scores might have been queries by heads."""
    model, tokens = build(name), inputs_for(name)["input_ids"]

    def logits_in_chunks():
        first = model(tokens[:, :5], use_cache=True)
        return model(tokens[:, 5:], past_key_values=first.past_key_values).logits

    if model.config.is_encoder_decoder or not model.can_generate() or name in ("xlnet", "blip"):
        pytest.skip("reads no chunks")
    dense = logits_in_chunks()
    assert torch.allclose(dense, model(tokens).logits[:, 5:], atol=1e-5)
    sparsify(model, SparsityConfig(init_alpha=1.6))
    assert tokens.shape[1] - 5 == next(iter(sparse_heads(model).values())).num_heads
    assert torch.allclose(logits_in_chunks(), model(tokens).logits[:, 5:], atol=1e-5)
