"""Backward passes over a batch of gradients at once, as for a Jacobian."""

import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from adasparse.functional import (
    entmax,
    entmax_attention,
    entmax_attention_varlen,
    entmax_attention_weights,
    entmax_loss,
)
from support.helpers import randn

ALPHA = torch.tensor([1.3, 1.6], dtype=torch.float64)
TARGET, OFFSETS = torch.tensor([0, 1, 2]), torch.tensor([0, 2, 5])
CALLS = {
    "entmax": (lambda x, a: entmax(x, a[0]), [(3, 4)]),
    "loss": (lambda x, a: entmax_loss(x, TARGET, a[0], reduction="none"), [(3, 4)]),
    "attention": (
        lambda q, k, v, m, a: entmax_attention(q, k, v, m, alpha=a, is_causal=True),
        [(1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 2), (3, 4)],
    ),
    "attention in torch": (
        lambda q, k, a: entmax_attention(q, k, k, alpha=a, backend="torch"),
        [(1, 2, 3, 2), (1, 2, 4, 2)],
    ),
    "weights": (
        lambda q, k, a: entmax_attention_weights(q, k, alpha=a),
        [(1, 2, 3, 2), (1, 2, 4, 2)],
    ),
    "varlen": (
        lambda x, a: entmax_attention_varlen(x, x, x, OFFSETS, max_q=3, max_k=3, alpha=a),
        [(5, 2, 4)],
    ),
}


@pytest.fixture(params=CALLS)
def call(request):
    function, shapes = CALLS[request.param]
    inputs = [randn(shape, seed=i, dtype=torch.float64) for i, shape in enumerate(shapes)]
    return function, tuple(x.requires_grad_() for x in (*inputs, ALPHA.clone()))


def test_vectorized_jacobian_and_hessian(call):
    function, inputs = call
    torch.testing.assert_close(
        jacobian(function, inputs, vectorize=True), jacobian(function, inputs)
    )

    def energy(*inputs):
        return function(*inputs).square().sum()

    torch.testing.assert_close(hessian(energy, inputs, vectorize=True), hessian(energy, inputs))


def test_vmap_over_the_backward_pass(call):
    function, inputs = call
    output = function(*inputs)
    grads = randn((3, *output.shape), dtype=torch.float64)

    def backward(grad):
        return torch.autograd.grad(output, inputs, grad, retain_graph=True)

    expected = [torch.stack(parts) for parts in zip(*map(backward, grads), strict=True)]
    torch.testing.assert_close(list(torch.func.vmap(backward)(grads)), expected)


@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (0,)], ids=str)
def test_second_derivatives_of_nothing(shape):
    scores = torch.empty(shape, requires_grad=True)
    (grad,) = torch.autograd.grad(entmax(scores).sum(), scores, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), scores, allow_unused=True)
    assert grad.shape == shape
    assert second is None or second.shape == shape
