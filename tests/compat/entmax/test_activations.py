"""sparsemax and 1.5-entmax, against the ``entmax`` package."""

import entmax.activations as package
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

from adasparse.compat.entmax import activations
from support.entmax_package import NEAR, randn, value_and_gradients

FUNCTIONS = ["sparsemax", "entmax15"]


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_the_package(name, dtype, dim, scale):
    scores = randn(3, 7, 11, dtype=dtype, scale=scale)
    ours = value_and_gradients(lambda x: getattr(activations, name)(x, dim), scores)
    theirs = value_and_gradients(lambda x: getattr(package, name)(x, dim), scores)
    assert_close(ours, theirs, **NEAR)


@pytest.mark.parametrize("k", [1, 2, 100])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_k_changes_nothing(name, k):
    scores = randn(4, 9)
    function = getattr(activations, name)
    assert torch.equal(function(scores, k=k), function(scores))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_masked_entries_are_zero(name):
    scores = randn(4, 9, dtype=torch.float32)
    scores[:, 5:] = -torch.inf
    weights, gradient = value_and_gradients(getattr(activations, name), scores)
    assert not weights[:, 5:].any()
    assert not gradient[:, 5:].any()
    assert_close(weights[:, :5], getattr(package, name)(scores[:, :5]), **NEAR)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fully_masked_rows_are_zero(name):
    scores = randn(3, 5, dtype=torch.float32)
    scores[1] = -torch.inf
    weights, gradient = value_and_gradients(getattr(activations, name), scores)
    assert not weights[1].any()
    assert not gradient[1].any()
    assert_close(weights.sum(-1), torch.tensor([1.0, 0.0, 1.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_is_the_rounded_result(name, dtype):
    scores = randn(4, 33, dtype=dtype, scale=3.0)
    ours = getattr(activations, name)(scores)
    exact = getattr(package, name)(scores.double())
    assert ours.dtype == dtype
    assert_close(ours, exact.to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_scores(name):
    scores = randn(8, 50, dtype=torch.float32, scale=1e4)
    weights = getattr(activations, name)(scores)
    assert_close(weights, getattr(package, name)(scores.double()).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("module", ["Sparsemax", "Entmax15"])
def test_support_size(module, dim):
    scores = randn(6, 8, 5)
    weights, size = getattr(activations, module)(dim=dim, return_support_size=True)(scores)
    assert torch.equal(weights, getattr(activations, module)(dim=dim)(scores))
    assert size.dtype == torch.int64
    assert torch.equal(size, weights.count_nonzero(dim).unsqueeze(dim))


def test_support_size_of_a_masked_row_is_zero():
    _, size = activations.sparsemax(torch.full((1, 3), -torch.inf), return_support_size=True)
    assert size.tolist() == [[0]]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("scale", [1e-5, 0.5, 1e4])
@pytest.mark.parametrize(
    ("name", "power"),
    [("_sparsemax_threshold_and_support", 1), ("_entmax_threshold_and_support", 2)],
)
def test_thresholds(name, power, scale, dim):
    scores = randn(3, 4, 5, scale=scale)
    tau, size = getattr(activations, name)(scores, dim)
    weights = (scores - tau).clamp(min=0) ** power
    assert_close(weights.sum(dim), torch.ones_like(weights.sum(dim)), atol=1e-9, rtol=0)
    their_tau, their_size = getattr(package, name)(scores, dim)
    assert_close(tau, their_tau)
    assert torch.equal(size, their_size)
    for k in (1, 3, 30):
        again = getattr(activations, name)(scores, dim, k)
        assert torch.equal(again[0], tau)
        assert torch.equal(again[1], size)


@pytest.mark.parametrize("module", ["Sparsemax", "Entmax15"])
def test_gradients(module):
    scores = randn(3, 4, 5).requires_grad_()
    assert gradcheck(getattr(activations, module)(dim=1, k=3), (scores,))


def test_function_classes_keep_their_defaults():
    scores = randn(4, 5)
    assert torch.equal(activations.SparsemaxFunction.apply(scores), activations.sparsemax(scores))
    assert torch.equal(
        activations.Entmax15Function.apply(scores), activations.entmax15(scores, dim=0)
    )
    assert_close(activations.Entmax15Function.apply(scores), package.Entmax15Function.apply(scores))


@pytest.mark.parametrize("k", [0, -3, 2.5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_k_must_be_a_count(name, k):
    with pytest.raises(ValueError, match=rf"k must be None or an integer.*got {k}\."):
        getattr(activations, name)(randn(2, 3), k=k)


def test_compiles_as_one_graph():
    def attend(scores):
        weights, size = activations.entmax15(scores, k=4, return_support_size=True)
        return weights * size

    scores = randn(3, 6)
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert_close(compiled(scores), attend(scores))
