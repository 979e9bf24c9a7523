"""Saved and loaded, a sparse model is the same model, or fails loudly."""

import itertools
import json
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModel

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.huggingface.implementations import holders
from adasparse.integrations.huggingface.models import MODEL_TYPE
from support.architectures import ARCHITECTURES, inputs_for

AUTO = {
    "marian": "AutoModelForSeq2SeqLM",
    "bart": "AutoModelForSeq2SeqLM",
    "t5": "AutoModelForSeq2SeqLM",
    "llama": "AutoModelForCausalLM",
    "gemma2": "AutoModelForCausalLM",
    "gemma3": "AutoModelForCausalLM",
    "qwen3": "AutoModelForCausalLM",
    "gpt2": "AutoModelForCausalLM",
    "bert": "AutoModelForMaskedLM",
    "modernbert": "AutoModelForMaskedLM",
    "vit": "AutoModelForImageClassification",
    "whisper": "AutoModelForSpeechSeq2Seq",
}


def trained(name, **settings):
    """A sparse model whose exponents are not where they started."""
    model = ARCHITECTURES[name].build()
    sparsify(model, SparsityConfig(**settings))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "entmax" in key:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model


def cases_of_dtypes():
    """Every architecture in float32, and two of them in half precision; the others are slow."""
    for name, dtype in itertools.product(
        ARCHITECTURES, (torch.float32, torch.bfloat16, torch.float16)
    ):
        is_usual = dtype == torch.float32 or name in ("bart", "llama")
        yield pytest.param(name, dtype, marks=() if is_usual else pytest.mark.slow)


@pytest.mark.parametrize(("name", "dtype"), list(cases_of_dtypes()), ids=str)
def test_round_trips_are_exact(name, dtype, tmp_path):
    auto = getattr(transformers, AUTO[name])
    trained(name).save_pretrained(tmp_path / "first")
    # Not by model.to(dtype), which also rounds the frequencies of rotary embeddings.
    model = auto.from_pretrained(tmp_path / "first", dtype=dtype)
    inputs = {
        key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs_for(name).items()
    }
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path / "second")
    for load in (auto.from_pretrained, type(model).from_pretrained):
        other = load(tmp_path / "second", dtype="auto")
        assert type(other) is type(model)
        assert other.dtype == dtype
        assert torch.equal(other(**inputs).logits, expected)
        assert len(sparse_heads(other)) == len(sparse_heads(model)) > 0
        for heads in sparse_heads(other).values():
            assert heads.alpha.alpha_logit.dtype == torch.float32


@pytest.mark.parametrize("name", ["marian", "bart", "gpt2", "bert", "vit"])
def test_round_trips_of_a_cast_model_are_exact(name, tmp_path):
    model = trained(name).bfloat16()
    inputs = {
        key: x.bfloat16() if x.is_floating_point() else x for key, x in inputs_for(name).items()
    }
    model.save_pretrained(tmp_path)
    other = type(model).from_pretrained(tmp_path)
    assert torch.equal(other(**inputs).logits, model(**inputs).logits)


def test_files_tell_that_the_model_is_sparse(tmp_path):
    model = trained("llama", modules="*.1.*")
    model.bfloat16().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == MODEL_TYPE
    assert config["attn_implementation"] == "adasparse"
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["adasparse"]["base_model_type"] == "llama"
    assert SparsityConfig.from_dict(config["adasparse"]["sparsity"]).modules == ("*.1.*",)
    assert not list(tmp_path.glob("*.bin"))
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        key = "model.layers.1.self_attn.entmax.alpha.alpha_logit"
        assert file.get_tensor(key).dtype == torch.float32
        assert file.get_tensor("model.embed_tokens.weight").dtype == torch.bfloat16
    # In memory it keeps the type that other code looks for.
    assert model.config.model_type == "llama"
    assert AutoConfig.from_pretrained(tmp_path).model_type == "llama"


def test_type_in_files_never_changes():
    """Old checkpoints carry this text; it is their only link to this package."""
    assert MODEL_TYPE == (
        "adasparse (pip install adasparse[hf]; import adasparse.integrations.huggingface)"
    )


def test_loading_without_adasparse_says_what_to_install(tmp_path):
    trained("llama").save_pretrained(tmp_path)
    code = (
        "import transformers\n"
        "for loader in (transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM):\n"
        f"    try: loader.from_pretrained({str(tmp_path)!r})\n"
        "    except ValueError as error: print(error)\n"
        "    else: print('loaded')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loaded" not in run.stdout
    assert MODEL_TYPE in run.stdout  # by the Auto class, in its error
    assert MODEL_TYPE in run.stderr  # by the other, in a warning before its error
    assert 'attn_implementation="adasparse"` is not supported' in run.stdout


def test_loading_with_a_dense_class_does_not_run_as_softmax(tmp_path):
    trained("llama").save_pretrained(tmp_path)
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="loaded with a dense class"):
        model(**inputs_for("llama"))


def test_another_implementation_cannot_be_asked_for(tmp_path):
    trained("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"This model is sparse.*got 'sdpa'"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa")


@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": "fixed", "init_alpha": 1.8},
        {"alpha": "annealed", "anneal_steps": 10},
        {"heads": (0, 2), "modules": "*decoder*"},
        {"length_scale": "adaptive"},
        {"length_scale": "per_head", "heads": (1,)},
        {"length_scale": "ssmax"},
    ],
    ids=str,
)
def test_every_setting_is_saved(settings, tmp_path):
    model = trained("marian", **settings)
    if settings.get("alpha") == "annealed":
        for heads in sparse_heads(model).values():
            heads.alpha.set_step(4)
    inputs = inputs_for("marian", padding="right")
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path)
    other = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert torch.equal(other(**inputs).logits, expected)
    if settings.get("alpha") == "annealed":
        for heads in sparse_heads(other).values():
            assert heads.exponents().item() == pytest.approx(1.2)


def test_a_model_without_its_head_can_be_loaded(tmp_path):
    model = trained("bert")
    inputs = inputs_for("bert", padding="right")
    expected = model.bert(**inputs).last_hidden_state
    model.save_pretrained(tmp_path)
    body = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False)
    assert torch.equal(body(**inputs).last_hidden_state, expected)
    body.save_pretrained(tmp_path / "body")
    whole = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "body")
    assert torch.equal(whole.bert(**inputs).last_hidden_state, expected)


def test_a_softmax_checkpoint_gets_its_first_exponents(tmp_path):
    """Loaded into a sparse class, what the file lacks is initialized, not left as memory is."""
    model = ARCHITECTURES["llama"].build()
    model.save_pretrained(tmp_path)
    sparsify(model, SparsityConfig(init_alpha=1.25, length_scale="per_head"))
    other = type(model).from_pretrained(tmp_path, config=model.config)
    for heads in sparse_heads(other).values():
        assert torch.allclose(heads.exponents(), torch.full((4,), 1.25))
        assert torch.allclose(heads.length_scale.beta, torch.full((4,), 0.05))
    inputs = inputs_for("llama")
    assert torch.equal(other(**inputs).logits, model(**inputs).logits)


def test_what_was_loaded_sparse_can_be_restored(tmp_path):
    dense = ARCHITECTURES["t5"].build()
    inputs = inputs_for("t5")
    expected = dense(**inputs).logits
    sparsify(dense)
    dense.save_pretrained(tmp_path)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    restore(model)
    assert type(model) is transformers.T5ForConditionalGeneration
    assert type(model.config) is transformers.T5Config
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(**inputs).logits, expected)
    model.save_pretrained(tmp_path / "dense")
    assert json.loads((tmp_path / "dense/config.json").read_text())["model_type"] == "t5"
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "dense")
    assert torch.equal(again(**inputs).logits, expected)


@pytest.mark.parametrize("cast", ["bfloat16", "half"])
def test_casting_spares_the_exponents(cast):
    model = trained("llama", length_scale="adaptive")
    before = {k: x.clone() for k, x in model.state_dict().items() if "entmax" in k}
    getattr(model, cast)()
    after = model.state_dict()
    assert before
    assert all(torch.equal(after[key], x) for key, x in before.items())
    assert model(**inputs_for("llama")).logits.isfinite().all()


@pytest.mark.parametrize("name", ["llama", "t5", "gemma2"])
def test_checkpoints_of_the_first_version_load(name, tmp_path):
    """They name one implementation for all parts, and modules that stay dense."""
    model = trained(name, modules="*.1.*")
    inputs = inputs_for(name, padding="right")
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for key in ("switched", "split", "through_softmax"):
        del config["adasparse"][key]
    config["adasparse"].update(version="0.1.0", dense=[])
    file.write_text(json.dumps(config))
    loaded = getattr(transformers, AUTO[name]).from_pretrained(tmp_path)
    real = inputs["decoder_attention_mask" if name == "t5" else "attention_mask"].bool()
    assert torch.allclose(loaded(**inputs).logits[real], expected[real], atol=1e-5)
    restore(loaded)
    assert {config._attn_implementation for _, _, _, config in holders(loaded)} <= {"eager", "sdpa"}
