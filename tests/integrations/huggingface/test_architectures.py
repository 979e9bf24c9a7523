"""Every architecture against the float64 oracle, forward and backward."""

import pytest
import torch

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.heads import sparse_heads
from support.architectures import ARCHITECTURES, inputs_for, real_positions
from support.dense_oracle import DenseOracle
from support.tolerances import MODEL

pytestmark = pytest.mark.parametrize("name", ARCHITECTURES)

#: Largest error, relative to the largest number of the tensor.
PADDINGS = [None, "right", "left"]


def assert_close(actual, expected, what="output", *, tolerance=MODEL, floor=1e-3):
    assert actual.shape == expected.shape, what
    assert actual.isfinite().all(), what
    error = (actual.double() - expected.double()).abs().max().item()
    allowed = tolerance * max(expected.abs().max().item(), floor)
    assert error <= allowed, f"{what}: error {error:.2e} above {allowed:.2e}"


def spread_alphas(model):
    """Give every head another exponent, as after some training."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for heads in sparse_heads(model).values():
            heads.alpha.alpha_logit.normal_(generator=generator)


def logits_at(positions, logits):
    return logits if positions is None else logits[positions]


@pytest.mark.parametrize("padding", PADDINGS)
def test_agrees_with_the_dense_oracle(name, padding):
    if name == "vit" and padding is not None:
        pytest.skip("images have no padding")
    model = ARCHITECTURES[name].build()
    sparsify(model)
    spread_alphas(model)
    oracle = DenseOracle(model)
    inputs = inputs_for(name, padding=padding)
    positions = real_positions(name, inputs)

    logits = logits_at(positions, model(**inputs).logits)
    expected = logits_at(positions, oracle(**inputs).logits)
    assert_close(logits, expected)

    generator = torch.Generator().manual_seed(4)
    direction = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    (logits * direction).sum().backward()
    (expected * direction).sum().backward()
    gradients = {key: x.grad for key, x in oracle.model.named_parameters() if x.grad is not None}
    # Some gradients are zero by symmetry, others small by cancellation.
    usual = torch.stack([x.abs().max() for x in gradients.values()]).median().item()
    for key, parameter in model.named_parameters():
        if key in gradients:
            assert_close(parameter.grad, gradients[key], key, tolerance=1e-4, floor=usual)
    for key, heads in sparse_heads(model).items():
        share = heads.alpha.alpha_logit.detach().sigmoid().double()
        by_logit = oracle.alphas[key].grad * share * (1 - share)
        assert by_logit.abs().min() > 0, key
        assert_close(heads.alpha.alpha_logit.grad, by_logit, key, tolerance=1e-4)


def test_one_is_softmax_and_restoring_is_exact(name):
    model = ARCHITECTURES[name].build()
    inputs = inputs_for(name, padding=None if name == "vit" else "right")
    positions = real_positions(name, inputs)
    before = model(**inputs).logits
    keys, dense_class, config_class = list(model.state_dict()), type(model), type(model.config)
    implementation = model.config._attn_implementation

    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    after = model(**inputs).logits
    assert_close(logits_at(positions, after), logits_at(positions, before))

    restore(model)
    assert torch.equal(model(**inputs).logits, before)
    assert type(model) is dense_class
    assert type(model.config) is config_class
    assert list(model.state_dict()) == keys
    assert model.config._attn_implementation == implementation
    assert not hasattr(model.config, "adasparse")


def test_every_attention_module_is_found_with_its_kind(name):
    model = ARCHITECTURES[name].build()
    report = sparsify(model)
    kinds = {what.split(",")[0] for what in report.changed.values()}
    assert kinds == set(ARCHITECTURES[name].kinds)
    assert len(report.changed) == 2 * len(kinds)
    assert not report.skipped


def test_weights_that_are_asked_for_are_those_used(name):
    model = ARCHITECTURES[name].build()
    sparsify(model, SparsityConfig(init_alpha=1.7))
    oracle = DenseOracle(model)
    inputs = inputs_for(name, padding=None if name == "vit" else "right")
    output = model(**inputs, output_attentions=True)
    expected = oracle(**inputs, output_attentions=True)
    positions = real_positions(name, inputs)
    # Two ways to compute the same in float32, each within 2e-5 of float64 in the worst model, BART.
    assert_close(
        logits_at(positions, output.logits),
        logits_at(positions, model(**inputs).logits),
        tolerance=4 * MODEL,
    )
    fields = [key for key in expected if "attentions" in key]
    assert sum(len(output[field]) for field in fields) == 2 * len(ARCHITECTURES[name].kinds)
    for field in fields:
        for weights, wanted in zip(output[field], expected[field], strict=True):
            assert weights.shape == wanted.shape
            is_row = wanted.sum(-1) > 0.5
            weights, wanted = weights[is_row], wanted[is_row]
            assert_close(weights, wanted, field, tolerance=1e-4)
            assert (weights == 0)[wanted == 0].float().mean() > 0.99
            assert (weights == 0).any()
