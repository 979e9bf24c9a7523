"""Workflows around sparse models: tracing, parts that only generate() runs, shares of the heads."""

import warnings

import pytest
import torch

from adasparse.integrations.huggingface import SparsityConfig, sparsify
from adasparse.integrations.huggingface.heads import SparseHeads
from support import families
from support.architectures import ARCHITECTURES, padding_mask, tokens
from support.unusual import build


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).logits


@pytest.mark.parametrize(
    ("name", "with_grad"),
    [
        ("llama", False),
        *(
            pytest.param(name, with_grad, marks=pytest.mark.slow)
            for name, with_grad in [("llama", True), ("bert", False), ("bloom", False)]
        ),
    ],
)
def test_a_traced_model_gives_the_same(name, with_grad):
    """A trace without gradients held uninitialized memory; one with them failed its check."""
    model = ARCHITECTURES[name].build() if name in ARCHITECTURES else build(name)
    sparsify(model)
    model.config.use_cache = False
    module = Logits(model).eval()
    with torch.set_grad_enabled(with_grad), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit.*")
        traced = torch.jit.trace(module, (tokens(2, 9), padding_mask(2, 9, "right")))
    for mask in (padding_mask(2, 9, "right"), torch.ones(2, 9, dtype=torch.long)):
        ids = tokens(2, 9, seed=4)
        found, expected = traced(ids, mask), module(ids, mask)
        torch.testing.assert_close(found[mask.bool()], expected[mask.bool()])


def test_a_codec_that_only_generation_runs_stays_as_it_was():
    """No forward pass reaches it; the sound to transcribe ended in an error about exponents."""
    name = "KyutaiSpeechToTextForConditionalGeneration"
    model, inputs = families.build("kyutai_speech_to_text", name)
    report = sparsify(model, inputs=inputs)
    assert {module.split(".")[0] for module in report.changed} == {"model"}
    assert {module.split(".")[0] for module in report.skipped} == {"codec_model"}
    assert all("left as it was" in why for why in report.skipped.values())
    torch.manual_seed(0)
    sound = torch.randn(1, 1, 4800)
    assert model.generate(input_values=sound, max_new_tokens=2).shape[0] == 1


class TwoProcesses:
    """A mesh of two processes, of which this one is the second."""

    def size(self):
        return 2

    def get_local_rank(self):
        return 1


def test_each_process_has_the_exponents_of_its_heads():
    """All of them met the scores of half of the heads."""
    heads = SparseHeads(SparsityConfig(), num_heads=4, embed_dim=None)
    with torch.no_grad():
        heads.alpha.alpha_logit.copy_(torch.tensor([-1.0, 0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match=r"alpha is for 4 heads; got 2\. .* tp_plan"):
        heads.exponents_for(2, torch.device("cpu"))
    heads.mesh = TwoProcesses()
    assert torch.equal(heads.exponents_for(2, torch.device("cpu")), heads.exponents()[2:])
