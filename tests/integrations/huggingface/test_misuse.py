"""Calls of sparsify() that were no use: models without weights, wrapped models, wrong types."""

import math

import numpy as np
import pytest
import torch
import transformers

from adasparse.integrations.huggingface import (
    SparsityConfig,
    inspect_heads,
    restore,
    set_step,
    sparsify,
)
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.huggingface.measure import current_alpha
from support.architectures import ARCHITECTURES, tokens
from support.unusual import build

ONE = SparsityConfig(alpha="fixed", init_alpha=1.0)


def llama():
    return ARCHITECTURES["llama"].build()


class Around(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = llama()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Around, r"got Around\. Pass the model that it holds, \.body;"),
        (lambda: torch.nn.Linear(1, 1), r"got Linear\. For modules of your own, adasparse\.nn has"),
        (lambda: "gpt2", r"got str\. "),
    ],
)
def test_what_is_no_model_of_transformers_is_told_the_way_out(make, complaint):
    """All of them were told to add PEFT later."""
    with pytest.raises(TypeError, match=f"takes a model of transformers; {complaint}"):
        sparsify(make())


def test_adapters_come_second():
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(llama(), peft.LoraConfig(r=2))
    with pytest.raises(TypeError, match=r"got PeftModel.* make the model sparse first, then add"):
        sparsify(adapted)


def test_wrong_types_are_named():
    """They ended in an AttributeError and in "sequence item 0: expected str instance"."""
    model = llama()
    with pytest.raises(TypeError, match="config must be a SparsityConfig or None; got float"):
        sparsify(model, 1.5)
    for inputs in (tokens(1, 5), [("input_ids", tokens(1, 5))], {1: tokens(1, 5)}):
        with pytest.raises(TypeError, match="inputs must be a dictionary of the keyword arguments"):
            sparsify(model, inputs=inputs)
    assert not sparse_heads(model)


def test_weights_without_values_are_told():
    """It was an internal error of PyTorch, or "its output changes even at alpha 1"."""
    with torch.device("meta"):
        empty = transformers.LlamaForCausalLM(llama().config)
    partly = llama()
    partly.lm_head.to("meta")
    for model, name in ((empty, "model.embed_tokens"), (partly, "lm_head")):
        with pytest.raises(ValueError, match=rf"no values yet .* such as {name}\.weight"):
            sparsify(model)


def test_weights_that_are_not_finite_are_named():
    model = llama()
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"q_proj\.weight has values that are not finite"):
        sparsify(model)


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_models_that_accelerate_has_offloaded_become_sparse(name):
    """Dummies were made on the meta device, where the weights are while no module runs."""
    accelerate = pytest.importorskip("accelerate")
    model, ids = llama() if name == "llama" else build(name), tokens(2, 9)
    expected = model(ids).logits
    model = accelerate.cpu_offload(model, execution_device="cpu")
    assert model.device.type == "meta"
    sparsify(model, ONE)
    torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-4)
    restore(model)
    sparsify(model)
    assert not torch.allclose(model(ids).logits, expected, atol=1e-3)
    model(ids).logits.square().sum().backward()
    assert all(x.grad is not None for h in sparse_heads(model).values() for x in h.parameters())


def test_exponents_made_in_inference_mode_train():
    """They never got a gradient, and nothing said so."""
    model, ids = llama(), tokens(1, 6)
    with torch.inference_mode():
        sparsify(model)
    model.train()(ids, labels=ids).loss.backward()
    exponents = [x for heads in sparse_heads(model).values() for x in heads.parameters()]
    assert len(exponents) == 2
    assert all(x.grad is not None and not x.is_inference() for x in exponents)


def test_inputs_to_inspect_are_a_dictionary():
    """The error showed the whole model."""
    model = llama()
    sparsify(model)
    with pytest.raises(TypeError, match=r"inputs must be a dictionary of .*; got Tensor"):
        inspect_heads(model, tokens(1, 5))


@pytest.mark.parametrize("step", [-1, math.nan, "3"])
def test_steps_are_counted_from_0_on(step):
    """NaN made alpha one."""
    model = llama()
    sparsify(model, SparsityConfig(alpha="annealed", anneal_steps=4))
    with pytest.raises(ValueError, match="step must be a number from 0 on; got"):
        set_step(model, step)


def test_steps_may_be_numbers_of_other_libraries():
    model = llama()
    sparsify(model, SparsityConfig(alpha="annealed", final_alpha=1.5, anneal_steps=4))
    for step in (2, np.int64(2), torch.tensor(2)):
        set_step(model, step)
        assert all(x.eq(1.25).all() for x in current_alpha(model).values())
