"""Sparse models of several architectures, exported to ONNX at one size and run at others."""

import logging

import pytest
import torch
from torch import nn
from torch.export import Dim

import adasparse
from adasparse.export import to_onnx
from support.onnx_session import BAR, session_of

transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(  # of the exporter and of ONNX, about themselves
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
    ),
    pytest.mark.skipif(
        torch.__version__.startswith("2.6."), reason="the exporter of torch 2.6 fixes the lengths"
    ),
]

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
BOTH_SIDES = {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in {"layers": 2, "attention_heads": 4, "ffn_dim": 40}.items()
}
SHARED_KEYS = {"num_key_value_heads": 2, "sliding_window": 5}


class Named(nn.Module):
    """The logits of a transformers model, of tensors in the order of their names."""

    def __init__(self, model, *names):
        super().__init__()
        self.model, self.names = model.eval(), names
        model.config.use_cache = False

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    )


def qwen2():
    return transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**SIZES, **SHARED_KEYS, use_sliding_window=True)
    )


def gemma2():
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**SIZES, **SHARED_KEYS, head_dim=8, attn_logit_softcapping=3.0)
    )


def t5():
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4)
    )


def bart():
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(vocab_size=50, d_model=32, max_position_embeddings=64, **BOTH_SIDES)
    )


def vit():
    sizes = {name: size for name, size in SIZES.items() if name != "vocab_size"}
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**sizes, image_size=24, patch_size=8, num_labels=5)
    )


def ids(b, n):
    return torch.randint(3, 50, (b, n), generator=torch.Generator().manual_seed(b + n))


def with_mask(b, n):
    lengths = torch.randint(max(1, n // 2), n + 1, (b, 1))
    return ids(b, n), (torch.arange(n) < lengths).long()


def pair(b, n, m):
    return *with_mask(b, n), ids(b, m)


def images(b):
    return (torch.randn(b, 3, 24, 24),)


#: Names of inputs, how to make them, the size to export, and other sizes to run.
TEXT = ("input_ids", "attention_mask"), with_mask, (2, 9), [(1, 1), (2, 17), (5, 40)]
TEXTS = (*TEXT[0], "decoder_input_ids"), pair, (2, 9, 6), [(1, 3, 1), (2, 17, 4), (5, 40, 21)]
IMAGES = ("pixel_values",), images, (2,), [(1,), (5,)]
KINDS = {gpt2: TEXT, qwen2: TEXT, gemma2: TEXT, t5: TEXTS, bart: TEXTS, vit: IMAGES}


@pytest.fixture(autouse=True)
def _quiet_exporter(monkeypatch):
    """The exporter warns that torchvision is not installed."""
    monkeypatch.setattr(logging.getLogger("torch.onnx"), "disabled", True)


def check(model, kind):
    names, make, size, others = kind
    torch.manual_seed(0)
    inputs = make(*size)
    model = Named(model, *names)
    varying = {0: Dim.DYNAMIC} | ({1: Dim.DYNAMIC} if inputs[0].dim() == 2 else {})
    run = session_of(to_onnx(model, inputs, dynamic_shapes=((varying,) * len(inputs),)))
    for given in (inputs, *(make(*other) for other in others)):
        with torch.no_grad():
            expected = model(*given)
        error = (run(*given) - expected).abs()
        if len(given) == 2:
            error = error[given[1].bool()]
        assert error.max() <= BAR * max(1.0, expected.abs().max())


@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__)
def test_onnx_of_an_architecture(build):
    torch.manual_seed(0)
    model = build()
    report = adasparse.sparsify(model, adasparse.SparsityConfig(alpha="fixed", init_alpha=1.5))
    assert "0 skipped" in str(report)
    check(model, KINDS[build])


def test_onnx_of_a_model_that_is_partly_dense():
    """Dense attention was decomposed into a form for gradients, which the exporter refused."""
    torch.manual_seed(0)
    model = t5()
    config = adasparse.SparsityConfig(alpha="fixed", init_alpha=1.5, modules="encoder.*")
    adasparse.sparsify(model, config)
    check(model, TEXTS)
