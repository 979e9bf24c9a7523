"""The losses, against the ``entmax`` package and, at alpha 1, cross entropy."""

import entmax.losses as package
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from adasparse.compat.entmax import losses, normmax_bisect
from support.entmax_package import NEAR, randn, value_and_gradients

FUNCTIONS = [
    "sparsemax_loss",
    "entmax15_loss",
    "sparsemax_bisect_loss",
    "entmax_bisect_loss",
    "normmax_bisect_loss",
]
MODULES = [
    "SparsemaxLoss",
    "Entmax15Loss",
    "SparsemaxBisectLoss",
    "EntmaxBisectLoss",
    "NormmaxBisectLoss",
]


def targets(n, classes):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_the_package(name, dtype, scale):
    scores, target = randn(8, 13, dtype=dtype, scale=scale), targets(8, 13)
    ours = value_and_gradients(lambda x: getattr(losses, name)(x, target), scores)
    theirs = value_and_gradients(lambda x: getattr(package, name)(x, target), scores)
    assert_close(ours, theirs, **NEAR)


@pytest.mark.parametrize(
    ("name", "alpha"),
    [("entmax_bisect_loss", alpha) for alpha in (0.3, 0.8, 1.1, 1.25, 2, 3.0)]
    + [("normmax_bisect_loss", alpha) for alpha in (1.1, 1.25, 3.0, 8.0)],
)
def test_agrees_with_the_package_at_any_alpha(name, alpha):
    scores, target = randn(8, 13), targets(8, 13)
    ours = value_and_gradients(lambda x: getattr(losses, name)(x, target, alpha), scores)
    theirs = value_and_gradients(lambda x: getattr(package, name)(x, target, alpha), scores)
    assert_close(ours, theirs, **NEAR)


def test_alpha_1_is_cross_entropy():
    scores, target = randn(5, 7, dtype=torch.float32), targets(5, 7)
    ours = value_and_gradients(lambda x: losses.entmax_bisect_loss(x, target, 1), scores)
    expected = value_and_gradients(lambda x: cross_entropy(x, target, reduction="none"), scores)
    assert_close(ours, expected)


def test_normmax_up_to_1_is_the_distance_to_the_largest_score():
    scores, target = randn(5, 7), targets(5, 7)
    expected = scores.amax(-1) - scores[range(5), target]
    assert_close(losses.normmax_bisect_loss(scores, target, 1), expected)
    assert_close(losses.normmax_bisect_loss(scores, target, 0.5), expected)


def test_normmax_of_large_scores_loses_no_digits():
    scores, target = randn(50, 20, dtype=torch.float32), targets(50, 20)
    near, far = scores.double(), (scores + 4096).double()
    loss = losses.normmax_bisect_loss(far.float(), target)
    assert_close(loss, losses.normmax_bisect_loss(far - 4096, target).float())
    assert not torch.equal(near, far - 4096)  # the shift did round


@pytest.mark.parametrize("shape", [(6,), (6, 1)], ids=str)
@pytest.mark.parametrize("name", ["entmax_bisect_loss", "normmax_bisect_loss"])
def test_one_alpha_per_row(name, shape):
    scores, target = randn(6, 9), targets(6, 9)
    low = 0.3 if name == "entmax_bisect_loss" else 1.1
    alpha = torch.linspace(low, 2.5, 6, dtype=torch.float64)
    function = getattr(losses, name)
    each = [function(scores[i : i + 1], target[i : i + 1], a) for i, a in enumerate(alpha.tolist())]
    assert_close(function(scores, target, alpha.reshape(shape)), torch.cat(each))


def inputs_of_alpha(alpha):
    scores, target = randn(4, 6).requires_grad_(), targets(4, 6)
    alpha = torch.full((4,), alpha, dtype=torch.float64, requires_grad=True)
    return lambda x, a: losses.entmax_bisect_loss(x, target, a), (scores, alpha)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.3])
def test_gradients_of_scores_and_alpha(alpha):
    assert gradcheck(*inputs_of_alpha(alpha))


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.3])
def test_second_derivatives_of_scores_and_alpha(alpha):
    assert gradgradcheck(*inputs_of_alpha(alpha))


@pytest.mark.parametrize("alpha", [1.3, 2, 4])
def test_normmax_gradients(alpha):
    scores, target = randn(3, 5).requires_grad_(), targets(3, 5)
    assert gradcheck(lambda x: losses.normmax_bisect_loss(x, target, alpha), (scores,))
    assert gradgradcheck(lambda x: losses.normmax_bisect_loss(x, target, alpha), (scores,))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
@pytest.mark.parametrize("ignore_index", [2, -100])
def test_modules_agree_with_the_package(ignore_index, reduction, name):
    scores, target = randn(20, 6), targets(20, 6)
    arguments = {"ignore_index": ignore_index, "reduction": reduction}
    ours = value_and_gradients(lambda x: getattr(losses, name)(**arguments)(x, target), scores)
    theirs = value_and_gradients(lambda x: getattr(package, name)(**arguments)(x, target), scores)
    assert_close(ours, theirs, **NEAR)


@pytest.mark.parametrize("ignore_index", [-100, -1, 0, 3, 1000, torch.tensor(-7)], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_ignored_rows_change_nothing(name, ignore_index):
    scores, target = randn(9, 5), targets(9, 5)
    target[target == ignore_index] = 1
    target[::3] = ignore_index
    kept = target != ignore_index
    for reduction in ("elementwise_mean", "mean", "sum"):
        module = getattr(losses, name)(ignore_index=ignore_index, reduction=reduction)
        loss, gradient = value_and_gradients(lambda x, f=module: f(x, target), scores)
        expected, expected_gradient = value_and_gradients(
            lambda x, f=module: f(x, target[kept]), scores[kept]
        )
        assert_close(loss, expected)
        assert_close(gradient[kept], expected_gradient)
        assert not gradient[~kept].any()
    rows = getattr(losses, name)(ignore_index=ignore_index, reduction="none")(scores, target)
    assert not rows[~kept].any()
    assert rows[kept].all()


@pytest.mark.parametrize("name", MODULES)
def test_a_row_may_be_nothing_but_ignored(name):
    scores = randn(2, 4)
    scores[0] = -torch.inf
    loss, gradient = value_and_gradients(
        lambda x: getattr(losses, name)()(x, torch.tensor([-100, 1])), scores
    )
    assert loss.isfinite()
    assert not gradient[0].any()
    assert gradient[1].any()


@pytest.mark.parametrize("name", MODULES)
def test_the_mean_of_nothing_is_0(name):
    loss, gradient = value_and_gradients(
        lambda x: getattr(losses, name)()(x, torch.full((3,), -100)), randn(3, 4)
    )
    assert loss == 0
    assert not gradient.any()


@pytest.mark.parametrize("name", MODULES)
def test_masked_classes(name):
    scores, target = randn(6, 8), targets(6, 4)
    scores[:, 4:] = -torch.inf
    ours = value_and_gradients(lambda x: getattr(losses, name)()(x, target), scores)
    expected = value_and_gradients(lambda x: getattr(losses, name)()(x, target), scores[:, :4])
    assert_close(ours[0], expected[0])
    assert_close(ours[1][:, :4], expected[1])
    assert not ours[1][:, 4:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_is_the_rounded_result(name, dtype):
    scores, target = randn(6, 20, dtype=dtype, scale=2.0), targets(6, 20)
    ours = value_and_gradients(lambda x: getattr(losses, name)(x, target), scores)
    exact = value_and_gradients(lambda x: getattr(losses, name)(x, target), scores.double())
    eps = torch.finfo(dtype).eps
    assert_close(ours, tuple(x.to(dtype) for x in exact), atol=eps / 4, rtol=2 * eps)


@pytest.mark.parametrize("name", ["SparsemaxLoss", "Entmax15Loss"])
def test_support_size(name):
    scores, target = randn(6, 20), targets(6, 20)
    loss, size = getattr(losses, name)(return_support_size=True)(scores, target)
    assert_close(loss, getattr(losses, name)()(scores, target))
    activation = {"SparsemaxLoss": "sparsemax", "Entmax15Loss": "entmax15"}[name]
    weights = getattr(__import__("entmax"), activation)(scores)
    assert torch.equal(size, (weights > 0).sum(-1, keepdim=True))


def test_the_normmax_gradient_is_the_distance_to_the_target():
    scores, target = randn(3, 5).requires_grad_(), targets(3, 5)
    losses.normmax_bisect_loss(scores, target).sum().backward()
    expected = normmax_bisect(scores) - torch.nn.functional.one_hot(target, 5)
    assert_close(scores.grad, expected)


@pytest.mark.parametrize("name", MODULES)
def test_unknown_reductions_are_errors(name):
    with pytest.raises(ValueError, match=r"reduction must be one of .* got 'average'"):
        getattr(losses, name)(reduction="average")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_must_agree(name):
    with pytest.raises(ValueError, match=r"must agree on n; got \(3, 5\) and \(4,\)"):
        getattr(losses, name)(randn(3, 5), targets(4, 5))


@pytest.mark.parametrize("alpha", [0, -1.5, torch.tensor([0.0]), torch.tensor([0.5, -1.0, 2.0])])
def test_alpha_must_be_positive(alpha):
    smallest = float(torch.as_tensor(alpha).min())
    with pytest.raises(ValueError, match=rf"alpha must be (above|at least) 0.*; got {smallest}"):
        losses.entmax_bisect_loss(randn(3, 5), targets(3, 5), alpha)


@pytest.mark.parametrize("alpha", [0.5, 1.5])
@pytest.mark.parametrize("bad", [5, -1])
def test_targets_must_be_classes(bad, alpha):
    with pytest.raises(IndexError, match=rf"from 0 to 4 .* got {bad}\."):
        losses.entmax_bisect_loss(randn(1, 5), torch.tensor([bad]), alpha)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_targets_must_be_integers(name):
    with pytest.raises(TypeError, match=r"got torch\.float64"):
        getattr(losses, name)(randn(3, 5), randn(3))


def test_hints_must_be_counts():
    with pytest.raises(ValueError, match=r"k must be None or .* got 0\."):
        losses.Entmax15Loss(k=0)(randn(2, 3), targets(2, 3))
    with pytest.raises(ValueError, match=r"n_iter must be None or .* got -1\."):
        losses.NormmaxBisectLoss(n_iter=-1)(randn(2, 3), targets(2, 3))


def test_a_parameter_is_trained():
    module = losses.EntmaxBisectLoss(torch.nn.Parameter(torch.tensor(1.3)))
    module(randn(3, 5), targets(3, 5)).backward()
    assert [name for name, _ in module.named_parameters()] == ["alpha"]
    assert module.alpha.grad.isfinite()
