"""Windows of nearby keys give what all keys give."""

import pytest
import torch

from adasparse import entmax_attention, entmax_attention_weights
from adasparse.longcontext import nearby
from adasparse.nn import alibi_slopes, nape_slopes
from helpers import randn

SLOPES = {
    "nape": nape_slopes(4),
    "alibi": 16 * alibi_slopes(4),
    "mixed": torch.tensor([0.0, 2.0, 0.0, 1.0]),
    "all": torch.tensor([1.0, 1.5, 0.7, 3.0]),
}
ALPHAS = {"fixed": 1.5, "softmax": 1.0, "learned": torch.tensor([1.2, 1.9, 1.5, 1.05])}


@pytest.fixture
def uses(monkeypatch):
    """Count how often windows are used."""
    sizes, attend = [], nearby._attend_nearby

    def counting(*arguments):
        sizes.append(arguments[0].shape[1])
        return attend(*arguments)

    monkeypatch.setattr(nearby, "_attend_nearby", counting)
    return sizes


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES)
@pytest.mark.parametrize("alpha", ALPHAS.values(), ids=ALPHAS)
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_windows_change_nothing(alpha, slopes, groups, uses):
    n = 521
    query = randn((2, 4, n, 8)).requires_grad_()
    key = (1.5 * randn((2, groups, n, 8), seed=1)).requires_grad_()
    value = randn((2, groups, n, 8), seed=2).requires_grad_()
    inputs = [query, key, value]
    if isinstance(alpha, torch.Tensor):
        alpha = alpha.clone().requires_grad_()
        inputs.append(alpha)
    grad = randn((2, 4, n, 8), seed=3)
    expected = entmax_attention(
        query, key, value, alpha=alpha, is_causal=True, alibi_slopes=slopes, enable_gqa=True
    )
    found = nearby.causal_attention(query, key, value, alpha=alpha, slopes=slopes)
    assert uses, "no head was near"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    for x, y in zip(
        torch.autograd.grad(found, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(x, y, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 2.0])
def test_no_weight_is_beyond_its_window(alpha):
    query, key = 3 * randn((2, 2, 400, 4)), 3 * randn((2, 2, 400, 4), seed=1)
    slopes = torch.tensor([1.0, 2.5])
    weights = entmax_attention_weights(query, key, alpha=alpha, is_causal=True, alibi_slopes=slopes)
    place = torch.arange(400)
    distance = place[:, None] - place
    for head, window in enumerate(nearby._windows(query, key, alpha, slopes)):
        reached = distance[(weights[:, head] != 0).any(0)].max().item()
        assert reached <= window < 400 * (2 if alpha < 1.5 else 1)


def test_short_sequences_and_flat_slopes_take_the_short_way(uses):
    for n, slopes in ((200, nape_slopes(4)), (521, torch.full((4,), 0.01))):
        x = randn((1, 4, n, 8))
        found = nearby.causal_attention(x, x, x, alpha=1.5, slopes=slopes)
        expected = entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)
        assert torch.equal(found, expected)
    assert not uses


@pytest.mark.parametrize("n", [256, 257, 319, 320, 321])
def test_sizes_around_blocks(n, uses):
    x = randn((1, 2, n, 8))
    slopes = torch.tensor([4.0, 2.0])
    found = nearby.causal_attention(x, x, x, alpha=1.5, slopes=slopes)
    expected = entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert uses == [2]


def test_half_precision(uses):
    x = randn((1, 4, 521, 8)).bfloat16()
    slopes = SLOPES["all"]
    found = nearby.causal_attention(x, x, x, alpha=1.5, slopes=slopes)
    expected = entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)
    assert found.dtype == torch.bfloat16 and uses
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=0)
