"""Heads that are switched off or changed, against hooks on the projections behind them."""

import numpy as np
import pytest
import torch

from adasparse.analysis.explorer.server.interventions import HeadChanges, RequestError
from adasparse.analysis.recording.recorder import Recorder
from support import sample_models

HEAD_DIM = 8
#: An attention module of each model, and what projects the output of its heads.
PROJECTIONS = {
    "marian": (
        "model.decoder.layers.1.encoder_attn",
        "model.decoder.layers.1.encoder_attn.out_proj",
    ),
    "t5": ("encoder.block.1.layer.0.SelfAttention", "encoder.block.1.layer.0.SelfAttention.o"),
    "llama": ("model.layers.0.self_attn", "model.layers.0.self_attn.o_proj"),
    "gemma2": ("model.layers.1.self_attn", "model.layers.1.self_attn.o_proj"),
    "gpt2": ("transformer.h.1.attn", "transformer.h.1.attn.c_proj"),
    "bert": ("bert.encoder.layer.1.attention.self", "bert.encoder.layer.1.attention.output.dense"),
}


def logits(recorder, model):
    inputs = {"input_ids": torch.tensor([recorder.encode("Wo ist der alte Hund?")])}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([[0, 7, 9, 12]])
    with recorder.watched.watched(lambda kind, call: None):
        return model(**inputs).logits


@pytest.mark.parametrize("name", PROJECTIONS)
def test_heads_switched_off_are_as_if_their_output_were_zero(name):
    recorder = Recorder(sample_models.sparse(name), sample_models.tokenizer(), name=name)
    model = recorder.model
    module, projection = PROJECTIONS[name]
    before = logits(recorder, model)

    def zero(_, given):
        output = given[0].clone()
        for head in (1, 2):
            output[..., head * HEAD_DIM : (head + 1) * HEAD_DIM] = 0
        return (output, *given[1:])

    with model.get_submodule(projection).register_forward_pre_hook(zero):
        expected = logits(recorder, model)
    changes = HeadChanges(off={module: frozenset({1, 2})})
    changes.check(recorder.header)
    with changes.applied(model):
        found = logits(recorder, model)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, before)
    assert torch.equal(logits(recorder, model), before)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_alpha_of_one_head_is_as_if_configured(name):
    """All heads changed to one alpha equal a model configured with it."""
    recorder = Recorder(sample_models.sparse(name), sample_models.tokenizer(), name=name)
    other = Recorder(
        sample_models.sparse(name, alpha="fixed", init_alpha=1.9),
        sample_models.tokenizer(),
        name=name,
    )
    modules = {x for kind in recorder.header.kinds for x in recorder.header.modules[kind]}
    changes = HeadChanges(alpha={x: dict.fromkeys(range(4), 1.9) for x in modules})
    with changes.applied(recorder.model):
        found = logits(recorder, recorder.model)
    torch.testing.assert_close(found, logits(other, other.model), rtol=1e-4, atol=1e-5)
    for kind, alpha in changes.header(recorder.header).alpha.items():
        np.testing.assert_allclose(alpha, other.header.alpha[kind], rtol=1e-6)


def test_alpha_beyond_its_range_is_an_error():
    recorder = Recorder(sample_models.sparse("bert"), sample_models.tokenizer(), name="bert")
    module = PROJECTIONS["bert"][0]
    for alpha in (0.9, 4.1, float("nan")):
        with pytest.raises(RequestError, match=f"from 1 to 4; got {alpha}"):
            HeadChanges(alpha={module: {0: alpha}}).check(recorder.header)
