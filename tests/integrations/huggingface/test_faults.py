"""Models of several parts, and what once went wrong with them."""

import io
import pickle

import pytest
import torch
import transformers

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.huggingface.implementations import holders
from adasparse.integrations.huggingface.probe import run
from support.architectures import ARCHITECTURES, padding_mask, tokens
from support.architectures import inputs_for as usual_inputs
from support.unusual import build, inputs_for

ONE = SparsityConfig(alpha="fixed", init_alpha=1.0)


def implementations(model):
    return [(name, config._attn_implementation) for name, _, _, config in holders(model)]


def test_an_encoder_of_its_own_code_does_not_attend_to_padding():
    """BigBird-Pegasus got masks in the form of ours, and added True and False to its scores."""
    model, inputs = build("bigbird-pegasus"), inputs_for("bigbird-pegasus")
    inputs["attention_mask"] = padding_mask(2, 9, "right")
    expected = model(**inputs).logits
    restored = build("bigbird-pegasus")
    sparsify(restored, ONE)
    assert torch.allclose(restored(**inputs).logits, expected, atol=1e-5)
    changed = dict(
        inputs, input_ids=inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 7)
    )
    assert torch.allclose(restored(**changed).logits, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["bigbird", "bigbird-pegasus"])
def test_a_short_run_does_not_change_the_model_for_good(name):
    """The run that looks for attention is short; BigBird gave up its sparse blocks in it."""
    model, long = build(name), inputs_for(name, length=64)
    classes = [(key, type(x)) for key, x in model.named_modules()]
    kinds = [x.attention_type for x in model.modules() if hasattr(x, "attention_type")]
    if name == "bigbird":
        with pytest.raises(ValueError, match="replaced by other code at some lengths"):
            sparsify(model)
    else:
        sparsify(model)
        restore(model)
    assert [(key, type(x)) for key, x in model.named_modules()] == classes
    assert [x.attention_type for x in model.modules() if hasattr(x, "attention_type")] == kinds
    assert "block_sparse" in kinds
    output = model(**long)[0]
    assert torch.equal(output, build(name)(**long)[0])


@pytest.mark.parametrize("name", ["paligemma2", "llava"])
def test_restoring_gives_each_part_its_own_implementation(name):
    """Every part got that of the whole, which for some cannot run."""
    model, inputs = build(name), inputs_for(name)
    model.model.vision_tower.config._attn_implementation_internal = "eager"
    before, expected = implementations(model), model(**inputs).logits
    for _ in range(2):
        sparsify(model, inputs=inputs)
        assert not torch.equal(model(**inputs).logits, expected)
        restore(model)
        assert implementations(model) == before
        assert torch.equal(model(**inputs).logits, expected)


@pytest.mark.parametrize("name", ["paligemma2", "llava"])
def test_parts_come_back_from_files_as_they_were(name, tmp_path):
    model, inputs = build(name), inputs_for(name)
    before, expected = implementations(model), model(**inputs).logits
    sparsify(model)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    restore(loaded)
    assert implementations(loaded) == before
    assert torch.equal(loaded(**inputs).logits, expected)


def test_no_mask_is_not_taken_for_a_causal_one():
    """Splinter's modules do not say whether they are causal; inputs=... had a mask."""
    model = build("splinter")
    ids = inputs_for("splinter")["input_ids"]
    expected = model(input_ids=ids)[0]
    sparsify(model, ONE, inputs={"input_ids": ids, "attention_mask": padding_mask(2, 9, "right")})
    assert torch.allclose(model(input_ids=ids)[0], expected, atol=1e-5)


def time_series():
    generator = torch.Generator().manual_seed(0)
    return {
        "past_values": torch.randn(2, 10, generator=generator),
        "past_time_features": torch.randn(2, 10, 1, generator=generator),
        "past_observed_mask": torch.ones(2, 10),
        "future_values": torch.randn(2, 4, generator=generator),
        "future_time_features": torch.randn(2, 4, 1, generator=generator),
    }


def test_outputs_inside_tuples_are_compared():
    """Informer's are a loss and a tuple, and its masks were wrong."""
    inputs = time_series()
    dense, model = build("informer"), build("informer")
    sparsify(model, ONE, inputs=inputs)
    expected, actual = run(dense, inputs), run(model, inputs)
    assert len(expected) > 3
    for x, y in zip(actual, expected, strict=True):
        assert torch.allclose(x, y, atol=1e-5, rtol=1e-4)


def test_a_part_that_was_not_reached_stays_as_it_was():
    """The first image after sparsify(model) raised an error."""
    model, inputs = build("llava"), inputs_for("llava")
    tower = model.model.vision_tower
    pixels = inputs["pixel_values"]
    expected = tower(pixels).last_hidden_state
    report = sparsify(model)
    assert {name.split(".")[1] for name in report.changed} == {"language_model"}
    assert all("left as it was" in why for why in report.skipped.values())
    assert torch.equal(tower(pixels).last_hidden_state, expected)
    assert model(**inputs).logits.isfinite().all()


def test_cross_attention_that_was_not_reached_is_softmax(tmp_path):
    options = {**ARCHITECTURES["gpt2"].options, "add_cross_attention": True}
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**options)).eval()
    given = {"input_ids": tokens(1, 4), "encoder_hidden_states": torch.randn(1, 5, 32)}
    expected = model(**given).logits
    report = sparsify(model, ONE)
    assert "left as it was" in report.skipped["transformer.h.0.crossattention"]
    assert torch.allclose(model(**given).logits, expected, atol=1e-5)
    model.save_pretrained(tmp_path)
    assert torch.allclose(
        type(model).from_pretrained(tmp_path)(**given).logits, expected, atol=1e-5
    )
    restore(model)
    report = sparsify(model, inputs=given)
    assert report.changed["transformer.h.0.crossattention"].startswith("context")


def test_a_checkpoint_loads_whatever_constructors_do_with_the_implementation(tmp_path):
    """SAM looks classes up by it, and had none for ours."""
    model = build("sam")
    inputs = {"pixel_values": torch.randn(1, 3, 32, 32)}
    sparsify(model)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path)
    assert torch.allclose(loaded(**inputs).pred_masks, model(**inputs).pred_masks, atol=1e-6)
    assert len(sparse_heads(loaded)) == len(sparse_heads(model)) == 9


@pytest.mark.parametrize("name", ["gemma2", "llama"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_queries_that_see_no_key_are_no_reason_to_refuse(name, implementation):
    model = ARCHITECTURES[name].build()
    if name == "llama":
        model.set_attn_implementation(implementation)
    inputs = usual_inputs(name, padding="left")
    assert len(sparsify(model, inputs=inputs).changed) == 2


def test_a_dense_model_around_a_sparse_part_is_not_saved(tmp_path):
    """It was, and came back as softmax."""
    model = ARCHITECTURES["llama"].build()
    sparsify(model.model)
    with pytest.raises(
        ValueError, match=r"LlamaForCausalLM cannot be saved: .* LlamaModel, is sparse"
    ):
        model.save_pretrained(tmp_path / "whole")
    with pytest.raises(OSError, match=r"safetensors"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    model.model.save_pretrained(tmp_path / "part")
    body = transformers.AutoModel.from_pretrained(tmp_path / "part")
    inputs = usual_inputs("llama")
    assert torch.equal(body(**inputs)[0], model.model(**inputs)[0])
    assert any("entmax" in key for key in model.state_dict())
    with pytest.raises(ValueError, match=r"a part that is sparse already, model\."):
        sparsify(model)


class MyLlama(transformers.LlamaForCausalLM):
    """A class that transformers does not know."""


@pytest.mark.parametrize("make", [MyLlama, transformers.models.bart.modeling_bart.BartDecoder])
def test_classes_that_transformers_does_not_export_are_pickled(make):
    config = transformers.BartConfig if make is not MyLlama else transformers.LlamaConfig
    options = ARCHITECTURES["bart" if make is not MyLlama else "llama"].options
    torch.manual_seed(0)
    model = make(config(**options)).eval()
    sparsify(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    ids = tokens(1, 6)
    for other in (
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ):
        assert type(other) is type(model)
        assert torch.equal(other(input_ids=ids)[0], model(input_ids=ids)[0])
    restore(other)
    assert type(other) is make


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet", "it has no attention"),
        ("reformer", "attend by code of their own, in which no softmax over keys was seen"),
        ("longformer", r"whose softmax is not over the last dimension .* got \(1, 8, 4, 5\)"),
        ("nystromformer", "several softmaxes of different shapes"),
    ],
)
def test_refusals_name_the_reason(name, reason):
    model = build(name)
    before = implementations(model)
    with pytest.raises(
        ValueError, match=f"{type(model).__name__} cannot be made sparse: .*{reason}"
    ):
        sparsify(model)
    assert implementations(model) == before
