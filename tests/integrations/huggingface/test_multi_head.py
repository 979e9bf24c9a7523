"""Models that attend by PyTorch's own multi-head attention are sparse through its softmax."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    MBartConfig,
    MBartForSequenceClassification,
    SiglipVisionConfig,
    SiglipVisionModel,
    WavLMConfig,
    WavLMModel,
)

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from support.dense_oracle import DenseOracle

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}


def siglip():
    torch.manual_seed(0)
    model = SiglipVisionModel(SiglipVisionConfig(image_size=32, patch_size=8, **SIZES)).eval()
    head = model.get_submodule("head.attention")
    torch.nn.init.normal_(head.in_proj_weight, std=0.5)
    return model, {"pixel_values": torch.randn(2, 3, 32, 32)}


def wavlm():
    torch.manual_seed(0)
    sizes = {"conv_dim": (16,) * 7, "num_conv_pos_embedding_groups": 2}
    model = WavLMModel(WavLMConfig(**SIZES, **sizes)).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                x.normal_(std=0.5)
    return model, {"input_values": torch.randn(2, 4000)}


@pytest.mark.parametrize("make", [siglip, wavlm])
def test_agrees_with_the_oracle_and_at_one_with_softmax(make):
    model, inputs = make()
    with torch.no_grad():
        dense = model(**inputs).last_hidden_state
        pooled = model(**inputs).get("pooler_output", dense)
    one = sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    assert not one.skipped
    with torch.no_grad():
        assert torch.allclose(model(**inputs).last_hidden_state, dense, atol=1e-5)
        output = model(**inputs)
        assert torch.allclose(output.get("pooler_output", dense), pooled, atol=1e-5)
    restore(model)
    sparsify(model, SparsityConfig(init_alpha=1.7))
    with torch.no_grad():
        sparse, expected = model(**inputs), DenseOracle(model)(**inputs)
    assert not torch.allclose(sparse[0], dense, atol=1e-3)
    for key, x in expected.items():
        if x is not None:
            assert (sparse[key] - x).abs().max() <= 1e-4 * x.abs().max(), key


@pytest.mark.parametrize("make", [siglip, wavlm])
def test_exponents_get_gradients_and_are_saved(make, tmp_path):
    model, inputs = make()
    sparsify(model)
    output = model.train()(**inputs)
    output.get("pooler_output", output[0]).square().mean().backward()
    exponents = {name: x for name, x in model.named_parameters() if name.endswith("alpha_logit")}
    assert len(exponents) == (3 if make is siglip else 2)
    assert all(x.grad is not None and (x.grad != 0).any() for x in exponents.values())
    model.eval().save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(**inputs)[0], model(**inputs)[0])


def test_classes_with_inputs_of_their_own_shape_need_none():
    torch.manual_seed(0)
    choice = BertForMultipleChoice(BertConfig(vocab_size=96, **SIZES))
    assert len(sparsify(choice).changed) == 2
    heads = {f"{x}_attention_heads": 4 for x in ("encoder", "decoder")}
    sizes = {f"{x}_{y}": n for x in ("encoder", "decoder") for y, n in
             (("layers", 1), ("ffn_dim", 48))}  # fmt: skip
    classifier = MBartForSequenceClassification(
        MBartConfig(vocab_size=96, d_model=32, **heads, **sizes)
    )
    report = sparsify(classifier)
    assert len(report.changed) == 3
    assert not report.skipped
