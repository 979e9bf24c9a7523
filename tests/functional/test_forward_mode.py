"""Forward-mode differentiation agrees with finite differences."""

import pytest
import torch
from torch.autograd import forward_ad

from adasparse.functional import (
    entmax,
    entmax_attention,
    entmax_attention_weights,
    entmax_loss,
    sparsemax,
)

STEP = 1e-6


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def differences(function, inputs, directions):
    ahead = function(*(x + STEP * d for x, d in zip(inputs, directions, strict=True)))
    behind = function(*(x - STEP * d for x, d in zip(inputs, directions, strict=True)))
    return (ahead - behind) / (2 * STEP)


def dual(function, inputs, directions):
    with forward_ad.dual_level():
        pairs = [forward_ad.make_dual(x, d) for x, d in zip(inputs, directions, strict=True)]
        return forward_ad.unpack_dual(function(*pairs)).tangent


def check(function, *inputs):
    directions = [torch.randn_like(x) for x in inputs]
    expected = differences(function, inputs, directions)
    _, tangent = torch.func.jvp(function, tuple(inputs), tuple(directions))
    torch.testing.assert_close(tangent, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(dual(function, inputs, directions), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("alpha", [1.0001, 1.5, 1.7, 2.4, 5.0])
def test_entmax(alpha, backend):
    torch.manual_seed(0)
    scores = randn(3, 6) / max(alpha - 1, 0.5)
    check(lambda s: entmax(s, alpha, backend=backend), scores)
    alphas = torch.tensor([[alpha], [1.3], [alpha + 0.1]], dtype=torch.float64)
    check(lambda s, a: entmax(s, a, backend=backend), scores, alphas)
    check(lambda a: entmax(scores.T, a, dim=0, backend=backend), alphas.T)


def test_sparsemax():
    torch.manual_seed(1)
    check(sparsemax, randn(4, 7))


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("alpha", [1.5, 3.0])
def test_attention(alpha, backend):
    torch.manual_seed(2)
    query, key, value = randn(2, 2, 3, 4), randn(2, 2, 5, 4), randn(2, 2, 5, 3)
    per_head = torch.tensor([alpha, 1.2], dtype=torch.float64)
    lengths = torch.tensor([5, 3])

    def attend(q, k, v, a):
        return entmax_attention(q, k, v, alpha=a, key_lengths=lengths, backend=backend)

    check(attend, query, key, value, per_head)
    check(lambda q: attend(q, key, value, per_head), query)  # torch 2.6 could not read alpha
    check(lambda q: entmax_attention_weights(q, key, alpha=alpha, backend=backend), query)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_loss(backend):
    torch.manual_seed(3)
    scores, alpha = randn(4, 5), torch.tensor(1.6, dtype=torch.float64)
    target = torch.tensor([0, 4, -100, 2])
    check(lambda s, a: entmax_loss(s, target, a, backend=backend), scores, alpha)


def test_jacobians_forward_and_reverse_agree():
    torch.manual_seed(4)
    scores = randn(5)
    forward = torch.func.jacfwd(entmax)(scores)
    torch.testing.assert_close(forward, torch.func.jacrev(entmax)(scores))
    hessian = torch.func.jacfwd(torch.func.jacrev(lambda s: entmax(s)[0]))(scores)
    torch.testing.assert_close(hessian, hessian.T)
