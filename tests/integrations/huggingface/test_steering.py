"""Calls of attention can be changed for a while, without touching the model."""

import threading
from dataclasses import replace

import pytest
import torch

from adasparse.integrations.huggingface import SparsityConfig, sparsify
from adasparse.integrations.huggingface.attention import steering
from support.architectures import ARCHITECTURES, inputs_for


def sparse(name, **options):
    model = ARCHITECTURES[name].build()
    sparsify(model, SparsityConfig(alpha="fixed", **options))
    return model


def logits(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


@pytest.mark.parametrize("name", ["marian", "llama", "gemma2", "bert"])
def test_a_changed_alpha_is_as_if_configured(name):
    inputs = inputs_for(name)
    model, other = sparse(name, init_alpha=1.2), sparse(name, init_alpha=1.9)
    before = logits(model, inputs)
    with steering(lambda call: replace(call, alpha=1.9)):
        changed = logits(model, inputs)
    torch.testing.assert_close(changed, logits(other, inputs))
    assert not torch.allclose(changed, before)
    assert torch.equal(logits(model, inputs), before)


@pytest.mark.parametrize("name", ["marian", "gemma2"])
def test_values_can_be_changed(name):
    model, inputs = sparse(name, init_alpha=1.2), inputs_for(name)
    with steering(lambda call: replace(call, value=call.value * 0)):
        nothing = logits(model, inputs)
        weights = model(**inputs, output_attentions=True)
    torch.testing.assert_close(weights.logits, nothing)
    assert not torch.allclose(nothing, logits(model, inputs))


def test_modules_left_dense_come_by():
    inputs = inputs_for("bert")
    model = sparse("bert", init_alpha=1.5, modules="*layer.0.*")
    everywhere = sparse("bert", init_alpha=1.5)
    with steering(lambda call: replace(call, alpha=1.5)):
        torch.testing.assert_close(logits(model, inputs), logits(everywhere, inputs))


def test_other_threads_are_not_affected():
    model, inputs = sparse("llama", init_alpha=1.2), inputs_for("llama")
    expected, found = logits(model, inputs), []
    with steering(lambda call: replace(call, alpha=2.0)):
        thread = threading.Thread(target=lambda: found.append(logits(model, inputs)))
        thread.start()
        thread.join()
    assert torch.equal(found[0], expected)
