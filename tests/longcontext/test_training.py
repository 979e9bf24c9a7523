"""Losses, gradients, generation and files of long-context models."""

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

from adasparse.longcontext import LongContextForCausalLM
from adasparse.nn import parameter_groups
from support.small_models import (
    ATTENTIONS,
    POSITIONS,
    config,
    extra_parameters,
    model,
    padding,
    tokens,
)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradients_are_finite_and_reach_everything(attention, positions):
    made, ids = model(attention, positions).train(), tokens(2, 20)
    labels = ids.masked_fill(padding([20, 9], 20, "left") == 0, -100)
    made(ids, attention_mask=padding([20, 9], 20, "left"), labels=labels).loss.backward()
    for name, x in made.named_parameters():
        assert x.grad.isfinite().all(), name
        assert (x.grad != 0).any(), name
    for name, x in extra_parameters(made).items():
        assert (x.grad != 0).all(), name


def test_every_parameter_of_length_scales_learns_from_the_start():
    made, ids = LongContextForCausalLM(config("asentmax-adaptive")), tokens(2, 20)
    for name, x in extra_parameters(made).items():
        if name.endswith("weight"):
            assert not x.any(), name
    made(ids, labels=ids).loss.backward()
    for name, x in extra_parameters(made).items():
        assert (x.grad != 0).any(), name


@pytest.mark.parametrize("attention", ["asentmax-adaptive", "ssmax"])
@pytest.mark.parametrize("positions", ["rope", "nape"])
def test_gradients_are_slopes_of_the_loss(attention, positions):
    made, ids = model(attention, positions).double(), tokens(2, 12)
    mask = padding([12, 8], 12, "left")
    parameters = dict(made.named_parameters())
    direction = {
        name: torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(i))
        for i, (name, x) in enumerate(parameters.items())
    }

    def loss(step):
        moved = {name: x + step * direction[name] for name, x in parameters.items()}
        moved["lm_head.weight"] = moved["model.embed_tokens.weight"]
        inputs = {"input_ids": ids, "attention_mask": mask}
        output = torch.func.functional_call(made, moved, (), inputs, tie_weights=False)
        return cross_entropy(output.logits.flatten(0, 1), ids.flatten())

    loss(0.0).backward()
    along = sum((x.grad * direction[name]).sum() for name, x in parameters.items())
    with torch.no_grad():
        measured = (loss(1e-6) - loss(-1e-6)) / 2e-6
    torch.testing.assert_close(along, measured, rtol=1e-5, atol=0)


def test_loss_is_that_of_the_next_token():
    made, ids = model(), tokens(3, 10)
    labels = ids.clone()
    labels[:, :4] = -100
    with torch.no_grad():
        output = made(ids, labels=labels)
        expected = cross_entropy(output.logits[:, 3:-1].flatten(0, 1), ids[:, 4:].flatten())
        torch.testing.assert_close(output.loss, expected)
        total = made(ids, labels=labels, num_items_in_batch=torch.tensor(100)).loss
    torch.testing.assert_close(total, expected * 18 / 100)


def test_accumulated_gradients_are_those_of_the_whole_batch():
    made, ids = model().train(), tokens(4, 10)
    labels = ids.masked_fill(padding([10, 4, 7, 2], 10, "right") == 0, -100)
    made(ids, labels=labels).loss.backward()
    expected = [x.grad.clone() for x in made.parameters()]
    made.zero_grad()
    count = (labels[:, 1:] != -100).sum()
    for rows in (slice(0, 1), slice(1, 4)):
        made(ids[rows], labels=labels[rows], num_items_in_batch=count).loss.backward()
    for x, gradient in zip(made.parameters(), expected, strict=True):
        torch.testing.assert_close(x.grad, gradient, atol=1e-6, rtol=1e-4)


def test_logits_to_keep_leaves_out_the_others():
    made, ids = model(), tokens(2, 10)
    labels = ids.clone()
    labels[:, :7] = -100
    with torch.no_grad():
        whole = made(ids, labels=labels)
        last = made(ids, labels=labels, logits_to_keep=4)
        some = made(ids, logits_to_keep=torch.tensor([1, 5]))
    assert torch.equal(last.logits, whole.logits[:, -4:])
    torch.testing.assert_close(last.loss, whole.loss)
    assert torch.equal(some.logits, whole.logits[:, [1, 5]])


@pytest.mark.parametrize("attention", ["softmax", "asentmax-adaptive"])
def test_gradient_checkpointing_changes_nothing(attention):
    made, ids = model(attention).train(), tokens(2, 10)
    made(ids, labels=ids).loss.backward()
    expected = [x.grad.clone() for x in made.parameters()]
    made.zero_grad()
    made.gradient_checkpointing_enable()
    made(ids, labels=ids).loss.backward()
    for x, gradient in zip(made.parameters(), expected, strict=True):
        torch.testing.assert_close(x.grad, gradient)


def test_dropout_is_for_training():
    made, ids = model(dropout=0.5), tokens(1, 10)
    assert torch.equal(made(ids).logits, made(ids).logits)
    made.train()
    assert not torch.equal(made(ids).logits, made(ids).logits)


def test_training_keeps_no_cache_unless_told():
    made, ids = model(), tokens(1, 3)
    assert made(ids).past_key_values is not None
    assert made(ids, use_cache=False).past_key_values is None
    made.train()
    assert made(ids).past_key_values is None
    assert made(ids, use_cache=True).past_key_values is not None


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}], ids=str)
def test_generation_is_the_same_with_and_without_a_cache(attention, options):
    made, ids = model(attention, "nape"), tokens(2, 8)
    mask = padding([8, 5], 8, "left")
    results = []
    for cache in (
        {"use_cache": False},
        {"use_cache": True},
        {"cache_implementation": "static"},
    ):
        torch.manual_seed(0)
        results.append(
            made.generate(
                ids, attention_mask=mask, max_new_tokens=9, min_new_tokens=9, **options, **cache
            )
        )
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("positions", POSITIONS)
def test_generation_of_a_padded_prompt_is_that_of_the_prompt(positions):
    made, ids = model("asentmax", positions), tokens(2, 8)
    mask = padding([8, 5], 8, "left")
    together = made.generate(ids, attention_mask=mask, max_new_tokens=9, min_new_tokens=9)
    alone = made.generate(ids[1:, 3:], max_new_tokens=9, min_new_tokens=9)
    assert torch.equal(together[1, 8:], alone[0, 5:])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_files_bring_everything_back(attention, tmp_path):
    made, ids = model(attention), tokens(2, 9)
    made.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is LongContextForCausalLM
    assert loaded.config.to_dict() == AutoConfig.from_pretrained(tmp_path).to_dict()
    assert loaded.config.attention == attention
    assert torch.equal(loaded(ids).logits, made(ids).logits)
    for name, x in made.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], x), name
    names = load_file(tmp_path / "model.safetensors")
    assert any("alpha" in name for name in names) == attention.endswith("adaptive")


def test_exponents_stay_in_float32(tmp_path):
    model("asentmax-adaptive").save_pretrained(tmp_path)
    loaded = LongContextForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    layer = loaded.model.layers[0].self_attn
    assert layer.q_proj.weight.dtype == torch.bfloat16
    assert layer.alpha.alpha_logit.dtype == torch.float32
    assert loaded(tokens(1, 9)).logits.isfinite().all()


def test_weight_decay_spares_alpha():
    spared = parameter_groups(model("asentmax-adaptive"), weight_decay=0.1)[1]
    assert spared["weight_decay"] == 0
    assert [tuple(x.shape) for x in spared["params"]] == [(4,), (4,)]
    assert len(parameter_groups(model("asentmax"), weight_decay=0.1)) == 1
