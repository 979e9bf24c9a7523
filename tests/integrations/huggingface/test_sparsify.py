"""One call in, one call out, and nothing else changes."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import transformers

import adasparse
from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.attention import watching
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.huggingface.measure import current_alpha
from support.architectures import ARCHITECTURES, inputs_for, tokens
from support.unusual import build

_SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def snapshot(model):
    """Everything about a model that another part of a program could notice."""
    return {
        "class": type(model),
        "config": model.config,
        "configs": [id(x.config) for x in model.modules() if hasattr(x, "config")],
        "implementation": model.config._attn_implementation,
        "values": copy.deepcopy(model.config.to_dict()),
        "modules": [(name, type(x), x.training) for name, x in model.named_modules()],
        "attributes": {name: sorted(vars(x)) for name, x in model.named_modules()},
        "hooks": [len(x._forward_pre_hooks) for x in model.modules()],
    }


@pytest.mark.parametrize("name", ["bigbird", "longformer", "reformer", "resnet"])
def test_refused_models_are_left_alone(name):
    model = build(name)
    before, state = snapshot(model), torch.get_rng_state()
    with pytest.raises(ValueError, match=f"{type(model).__name__} cannot be made sparse: "):
        sparsify(model)
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SplinterModel", {**_SMALL, "intermediate_size": 32}),
        (
            "NllbMoeForConditionalGeneration",
            {
                "vocab_size": 50,
                "d_model": 32,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32,
                "num_experts": 2,
                "decoder_start_token_id": 2,
            },
        ),
    ],
)
def test_masks_are_explicit_where_modules_do_not_say_they_are_causal(name, options, tmp_path):
    """No mask would be taken for causal, or a causal decoder would see what is to come."""
    torch.manual_seed(0)
    config = getattr(transformers, name.replace("Model", "").split("For")[0] + "Config")(**options)
    model = getattr(transformers, name)(config).eval()
    inputs = {"input_ids": tokens(2, 7).remainder(50)}
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 5:] = 0
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens(2, 5).remainder(50)
    given = [inputs, {**inputs, "attention_mask": mask}]
    expected = [model(**x)[0] for x in given]
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    assert model.config._attn_implementation == "adasparse-explicit"
    for x, y in zip(given, expected, strict=True):
        real = mask.bool() if "attention_mask" in x and name == "SplinterModel" else ...
        assert torch.allclose(model(**x)[0][real], y[real], atol=1e-5)
    seen = []
    with watching(seen.append):
        model(**inputs)
    assert all(call.mask is None for call in seen)
    model.save_pretrained(tmp_path)
    other = type(model).from_pretrained(tmp_path)
    assert torch.equal(other(**inputs)[0], model(**inputs)[0])
    restore(model)
    assert torch.equal(model(**inputs)[0], expected[0])


def test_a_model_that_changes_at_softmax_is_refused():
    """Whatever else a model does in its attention would be lost without a word."""

    class Odd(transformers.LlamaForCausalLM):
        pass

    class OddAttention(transformers.models.llama.modeling_llama.LlamaAttention):
        def forward(self, *args, **kwargs):
            output, weights = super().forward(*args, **kwargs)
            is_sparse = self.config._attn_implementation != "sdpa" or hasattr(self, "entmax")
            return output + is_sparse, weights

    model = Odd(transformers.LlamaConfig(**ARCHITECTURES["llama"].options))
    model.model.layers[0].self_attn.__class__ = OddAttention
    before = snapshot(model)
    with pytest.raises(ValueError, match="Odd cannot be made sparse: its output changes"):
        sparsify(model)
    assert snapshot(model) == before


def test_experts_run_as_in_the_dense_model(tmp_path):
    """Transformers looks into the file of a class for them; that of a sparse one is another."""
    options = {**ARCHITECTURES["llama"].options, "num_local_experts": 2, "num_experts_per_tok": 1}
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**options)).eval()
    sparsify(model)
    model.save_pretrained(tmp_path)
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert other.config._experts_implementation == model.config._experts_implementation
    inputs = inputs_for("llama")
    assert torch.equal(other(**inputs).logits, model(**inputs).logits)
    body = transformers.AutoModel.from_pretrained(tmp_path)
    expected = model.model(**inputs).last_hidden_state
    assert torch.equal(body(**inputs).last_hidden_state, expected)


def test_only_the_given_instance_changes():
    model = ARCHITECTURES["llama"].build()
    twin = type(model)(model.config).eval()  # shares the configuration
    before, inputs = snapshot(twin), inputs_for("llama")
    expected = twin(**inputs).logits
    sparsify(model)
    assert snapshot(twin) == before
    assert torch.equal(twin(**inputs).logits, expected)
    assert type(model) is not type(twin)
    assert isinstance(model, type(twin))
    assert type(model).__name__ == type(twin).__name__
    assert "adasparse" in type(model).__module__


def test_modes_and_generators_are_left_alone():
    model = ARCHITECTURES["bart"].build().train()
    model.model.encoder.eval()
    modes = [x.training for x in model.modules()]
    state = torch.get_rng_state()
    sparsify(model)
    assert torch.equal(torch.get_rng_state(), state)
    restore(model)
    assert [x.training for x in model.modules()] == modes


def test_report_tells_what_was_changed_and_what_not():
    model = ARCHITECTURES["bart"].build()
    config = SparsityConfig(modules="*encoder*", attention=("encoder",), heads=(0, 3))
    report = sparsify(model, config)
    text = str(report)
    assert "BartForConditionalGeneration: 2 sparse, 4 skipped" in text
    assert "model.encoder.layers.0.self_attn: encoder, 2 of 4 heads, alpha learned from 1.5" in text
    assert "model.decoder.layers.0.encoder_attn: skipped, it is of kind 'context'" in text
    assert "model.decoder.layers.0.self_attn: skipped, its name does not match" in text
    assert list(sparse_heads(model)) == list(report.changed)


def test_matching_nothing_is_an_error_with_candidates():
    model = ARCHITECTURES["llama"].build()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"\*foo.*model\.layers\.0\.self_attn \(decoder\)"):
        sparsify(model, SparsityConfig(modules="*foo"))
    with pytest.raises(ValueError, match=r"match none of the 2 attention modules"):
        sparsify(model, SparsityConfig(attention=("context",)))
    with pytest.raises(ValueError, match=r"heads=\(9,\)"):
        sparsify(model, SparsityConfig(heads=(9,)))
    assert snapshot(model) == before


def test_misuse_is_told():
    with pytest.raises(TypeError, match="takes a model of transformers; got Linear"):
        sparsify(torch.nn.Linear(1, 1))
    model = ARCHITECTURES["llama"].build()
    with pytest.raises(ValueError, match="takes a model that sparsify"):
        restore(model)
    sparsify(model)
    with pytest.raises(ValueError, match="is sparse already"):
        sparsify(model)
    with pytest.raises(ValueError, match="got 'sdpa'"):
        model.set_attn_implementation("sdpa")


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_skipped_modules_stay_as_they_were(implementation):
    model = ARCHITECTURES["t5"].build()
    model.set_attn_implementation(implementation)
    inputs = inputs_for("t5", padding="right")
    dense = {}
    name = "decoder.block.1.layer.0.SelfAttention"
    hook = model.get_submodule(name).register_forward_hook(
        lambda module, args, output: dense.setdefault("output", output[0])
    )
    model(**inputs)
    hook.remove()
    # Nothing before that module is sparse, so it gets the same input.
    sparsify(model, SparsityConfig(modules="decoder.block.1.layer.1.*"))
    found = {}
    model.get_submodule(name).register_forward_hook(
        lambda module, args, output: found.setdefault("output", output[0])
    )
    model(**inputs)
    assert torch.allclose(found["output"], dense["output"], atol=1e-5)
    model(**inputs, output_attentions=True)


def test_other_heads_stay_softmax():
    model = ARCHITECTURES["bert"].build()
    inputs = inputs_for("bert", padding="right")
    sparsify(model, SparsityConfig(heads=(1, 3), init_alpha=1.9))
    weights = model(**inputs, output_attentions=True).attentions
    first = weights[0][0, :, :, :]  # the first sequence has no padding
    assert (first[[0, 2]] > 0).all()
    assert (first[[1, 3]] == 0).any()
    heads = sparse_heads(model)["bert.encoder.layer.0.attention.self"]
    assert heads.alpha.num_heads == 2
    model(**inputs).logits.sum().backward()
    assert (heads.alpha.alpha_logit.grad != 0).all()


@pytest.mark.parametrize("heads", [None, (1, 3)])
def test_tied_heads_share_one_alpha(tmp_path, heads):
    model = ARCHITECTURES["bert"].build()
    inputs = inputs_for("bert", padding="right")
    sparsify(model, SparsityConfig(tie_heads=True, heads=heads, init_alpha=1.7))
    for module in sparse_heads(model).values():
        assert [x.numel() for x in module.parameters()] == [1]
        torch.nn.init.constant_(module.alpha.alpha_logit, 0.4)
    shared = 1 + torch.tensor(0.4).sigmoid().item()
    for alpha in current_alpha(model).values():
        chosen = range(4) if heads is None else heads
        assert alpha.tolist() == pytest.approx([shared if i in chosen else 1.0 for i in range(4)])
    expected = model(**inputs).logits
    expected.sum().backward()
    assert all(x.alpha.alpha_logit.grad.item() != 0 for x in sparse_heads(model).values())
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    assert loaded.config.adasparse["sparsity"]["tie_heads"]
    assert torch.equal(loaded(**inputs).logits, expected)


def test_a_tied_alpha_moves_as_the_sum_of_its_heads():
    """The gradient of the shared exponent is that of separate ones, added up."""
    inputs, gradients = inputs_for("bert", padding="right"), []
    for tie_heads in (True, False):
        model = ARCHITECTURES["bert"].build()
        sparsify(model, SparsityConfig(tie_heads=tie_heads))
        model(**inputs).logits.square().sum().backward()
        heads = sparse_heads(model).values()
        gradients.append(torch.stack([x.alpha.alpha_logit.grad.sum() for x in heads]))
    assert torch.allclose(*gradients, rtol=1e-4)


def test_a_model_can_be_copied_and_pickled():
    model = ARCHITECTURES["llama"].build()
    sparsify(model)
    inputs = inputs_for("llama")
    expected = model(**inputs).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        assert torch.equal(other(**inputs).logits, expected)
    restore(other)
    assert type(model).__module__ != type(other).__module__


@pytest.mark.parametrize("kind", ["adaptive", "per_head", "ssmax"])
@pytest.mark.parametrize("name", ["llama", "t5", "bert"])
def test_length_scales_see_no_padding(name, kind):
    """What a sequence gives does not depend on the padding behind it."""
    model = ARCHITECTURES[name].build()
    sparsify(model, SparsityConfig(length_scale=kind))
    with torch.no_grad():
        for key, x in model.named_parameters():
            if "length_scale" in key:
                x.add_(torch.randn(x.shape, generator=torch.Generator().manual_seed(1)) * 0.3)
    inputs = inputs_for(name, padding="right")
    padded = model(**inputs).logits
    last = {
        key: x[2:, : int(inputs[key.replace("input_ids", "attention_mask")][2].sum())]
        for key, x in inputs.items()
        if "input_ids" in key
    }
    alone = model(**last).logits
    assert torch.allclose(padded[2:, : alone.shape[1]], alone, atol=1e-4, rtol=1e-4)
    padded.sum().backward()
    for key, x in model.named_parameters():
        if "length_scale" in key:
            assert x.grad.isfinite().all()
            assert (x.grad != 0).any()


@pytest.mark.parametrize("kind", ["adaptive", "ssmax"])
def test_length_scales_grow_with_a_cache(kind):
    model = ARCHITECTURES["llama"].build()
    sparsify(model, SparsityConfig(length_scale=kind))
    options = {"max_new_tokens": 6, "do_sample": False}
    prompt = tokens(2, 4)
    expected = model.generate(prompt, use_cache=False, **options)
    for cache in ("dynamic", "static"):
        actual = model.generate(prompt, cache_implementation=cache, **options)
        assert torch.equal(actual, expected)


def test_names_at_top_level_are_loaded_when_used():
    assert adasparse.sparsify is sparsify
    assert adasparse.restore is restore
    assert adasparse.SparsityConfig is SparsityConfig
    assert {"SparsityConfig", "restore", "sparsify"} <= set(dir(adasparse))


def test_missing_transformers_is_told_by_the_extra():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import adasparse\n"
        "try:\n    adasparse.sparsify\n"
        "except ImportError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'adasparse[hf]'" in run.stdout


def test_watching_ends_with_its_block():
    model = ARCHITECTURES["llama"].build()
    sparsify(model)
    seen = []
    with watching(seen.append):
        model(**inputs_for("llama"))
    assert len(seen) == 2
    with pytest.raises(ValueError, match="input_ids"), watching(seen.append):
        model()
    model(**inputs_for("llama"))
    assert len(seen) == 2
