"""entmax of any alpha, normmax and budgets, against the ``entmax`` package and brute force."""

import entmax.root_finding as package
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from adasparse.compat.entmax import root_finding
from adasparse.compat.entmax.root_finding import (
    BudgetBisect,
    EntmaxBisect,
    NormmaxBisect,
    SparsemaxBisect,
    budget_bisect,
    entmax_bisect,
    normmax_bisect,
    sparsemax_bisect,
)
from adasparse.kernels import reference
from support.entmax_package import NEAR, randn, value_and_gradients


def rand(*shape, low, high):
    return low + (high - low) * torch.rand(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )


def bisect(function, low, high):
    """Where a decreasing function of each row is zero, by brute force."""
    for _ in range(100):
        middle = (low + high) / 2
        is_above = function(middle) > 0
        low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
    return (low + high) / 2


def brute_normmax(scores, alpha):
    """From the condition ``scores - tau = (p / ||p||) ** (alpha - 1)`` on the support."""

    def powered(tau, power):
        gap = (scores - tau).clamp(min=0)
        return torch.where(gap > 0, gap**power, 0.0)

    top = scores.amax(-1, keepdim=True)
    tau = bisect(
        lambda tau: powered(tau, alpha / (alpha - 1)).sum(-1, keepdim=True) - 1, top - 1, top
    )
    weights = powered(tau, 1 / (alpha - 1))
    return weights / weights.sum(-1, keepdim=True)


def brute_budget(scores, budget):
    low, high = scores.amin(-1, keepdim=True) - 1, scores.amax(-1, keepdim=True)
    tau = bisect(lambda tau: (scores - tau).clamp(0, 1).sum(-1, keepdim=True) - budget, low, high)
    return (scores - tau).clamp(0, 1)


# entmax and sparsemax


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sparsemax_agrees_with_the_package(dtype, dim):
    scores = randn(3, 7, 11, dtype=dtype)
    ours = value_and_gradients(lambda x: sparsemax_bisect(x, dim), scores)
    theirs = value_and_gradients(lambda x: package.sparsemax_bisect(x, dim), scores)
    assert_close(ours, theirs, **NEAR)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9, 1.1, 1.25, 1.5, 2.0, 2.25])
def test_entmax_agrees_with_the_package(alpha, dtype, dim):
    scores = randn(3, 7, 11, dtype=dtype)
    alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    ours = value_and_gradients(lambda x, a: entmax_bisect(x, a, dim), scores, alpha)
    # in float64, as float32 bisection itself is not exact to 1e-5
    theirs = value_and_gradients(
        lambda x, a: package.entmax_bisect(x, a, dim), scores.double(), alpha
    )
    assert_close(ours[:2], [x.to(dtype) for x in theirs[:2]], **NEAR)
    assert_close(ours[2], theirs[2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_one_alpha_per_row_on_both_sides_of_1(dim):
    scores = randn(3, 4, 5)
    shape = list(scores.shape)
    shape[dim] = 1
    alpha = rand(*shape, low=0.05, high=2.5).requires_grad_()
    ours = value_and_gradients(lambda x, a: entmax_bisect(x, a, dim), scores, alpha)
    theirs = value_and_gradients(lambda x, a: package.entmax_bisect(x, a, dim), scores, alpha)
    assert_close(ours, theirs, **NEAR)


def test_an_expanded_alpha():
    scores = randn(3, 5)
    alpha = torch.tensor(1.3, dtype=torch.float64).expand(3, 1)
    assert_close(entmax_bisect(scores, alpha), entmax_bisect(scores, 1.3))


@pytest.mark.parametrize("alpha", [0, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
@pytest.mark.parametrize("n", [1, 2, 33, 500])
def test_alpha_below_1_agrees_with_the_reference(n, scale, alpha):
    scores = randn(4, n, scale=scale)
    scores[1, n // 2 :] = -torch.inf
    alpha = torch.tensor([float(alpha)], dtype=torch.float64, requires_grad=True)
    weights, gradient, by_alpha = value_and_gradients(entmax_bisect, scores, alpha)
    expected = reference.entmax_forward(scores, alpha.detach())
    grad = randn(*scores.shape, seed=1)
    expected_gradient, expected_by_alpha = reference.entmax_backward(
        expected, grad, alpha.detach(), with_alpha=True
    )
    assert_close(weights, expected)
    assert_close(gradient, expected_gradient)
    assert_close(by_alpha, expected_by_alpha.sum(0, keepdim=True), rtol=1e-6, atol=1e-9)
    assert_close(entmax_bisect(scores.float(), alpha).double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("alpha", [1, 1.0, torch.tensor(1), torch.ones(3, 1)], ids=str)
def test_alpha_1_is_softmax(alpha):
    scores = randn(3, 10, dtype=torch.float32)
    assert_close(entmax_bisect(scores, alpha), scores.softmax(-1))


def test_alpha_gradient_near_1():
    """The package gives anything up to -1653 here, since it divides by (alpha - 1) squared."""
    scores = randn(2, 50, dtype=torch.float32)
    gradients = [
        value_and_gradients(entmax_bisect, scores, torch.tensor(alpha, requires_grad=True))[2]
        for alpha in (1.0, 1.00001, 1.0001)
    ]
    assert_close(gradients[1], gradients[0], rtol=1e-3, atol=0)
    assert_close(gradients[2], gradients[0], rtol=1e-2, atol=0)


@pytest.mark.parametrize("value", [-0.5, float("nan"), float("inf")])
def test_alpha_must_not_be_negative(value):
    with pytest.raises(ValueError, match=f"alpha must be at least 0 and finite; got {value}"):
        entmax_bisect(randn(2, 3), alpha=value)


# normmax

ALPHAS = [1.2, 1.5, 2, 3, 5, 10]


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_normmax_agrees_with_the_package(alpha, dtype, dim):
    scores = randn(3, 7, 11, dtype=dtype)
    ours = value_and_gradients(lambda x: normmax_bisect(x, alpha, dim), scores)
    theirs = value_and_gradients(lambda x: package.normmax_bisect(x, alpha, dim), scores.double())
    assert_close(ours, [x.to(dtype) for x in theirs], **NEAR)


@pytest.mark.parametrize("alpha", [1.0001, 1.05, 1.5, 2.0, 4.0, 100.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("n", [1, 2, 31, 1000])
def test_normmax_agrees_with_brute_force(n, scale, alpha):
    scores = randn(5, n, scale=scale)
    # Bisecting loses digits where an error of one in tau is raised to the power 1 / (alpha - 1).
    tolerance = {"atol": max(1e-9, 1e-15 / (alpha - 1) * scale), "rtol": 1e-6}
    assert_close(normmax_bisect(scores, alpha), brute_normmax(scores, alpha), **tolerance)


def test_normmax_maximizes_its_objective():
    scores = randn(6)
    for alpha in ALPHAS:
        best = normmax_bisect(scores, alpha)
        others = entmax_bisect(randn(1000, 6, scale=2.0), 1.5)
        others = torch.cat([others, 0.999 * best + 0.001 * others])
        values = others @ scores - others.norm(alpha, dim=-1)
        assert (scores @ best - best.norm(alpha) >= values - 1e-12).all()


@pytest.mark.parametrize("alpha", [1, 0.5, torch.tensor(1.0), torch.tensor([[1.0], [0.3]])])
def test_normmax_up_to_1_takes_the_largest(alpha):
    scores = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, -1.0]])
    weights, gradient = value_and_gradients(lambda x: normmax_bisect(x, alpha), scores)
    assert torch.equal(weights, torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))
    assert not gradient.any()


def test_normmax_up_to_1_is_the_limit_from_above():
    scores = randn(4, 9)
    assert_close(normmax_bisect(scores, 1 + 1e-6), normmax_bisect(scores, 1))


@pytest.mark.parametrize("dim", [0, 1])
def test_one_normmax_alpha_per_row(dim):
    scores = randn(4, 6)
    alpha = rand(4, 1, low=1.1, high=4.0)
    if dim == 0:
        scores, alpha = scores.T, alpha.T
    ours = normmax_bisect(scores, alpha, dim)
    assert_close(ours, package.normmax_bisect(scores, alpha, dim), **NEAR)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_normmax_gradients(alpha):
    scores = randn(2, 5).requires_grad_()
    assert gradcheck(lambda x: normmax_bisect(x, alpha), (scores,))
    assert gradgradcheck(lambda x: normmax_bisect(x, alpha), (scores,))


def test_normmax_gradients_of_masked_rows():
    scores = randn(3, 5)
    scores[0, 2:] = -torch.inf
    scores[1] = -torch.inf
    scores.requires_grad_()
    weights = normmax_bisect(scores, 1000.0)
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores, create_graph=True)
    gradient[:, 0].sum().backward()
    for x in (gradient, scores.grad):
        assert x.isfinite().all()
        assert not x[1].any()
        assert not x[0, 2:].any()


# budgets


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("budget", [0, 0.3, 1, 2, 2.5, 3])
def test_budget_agrees_with_the_package(budget, dtype, dim):
    scores = randn(3, 7, 11, dtype=dtype)
    ours = value_and_gradients(lambda x: budget_bisect(x, budget, dim), scores)
    # Its gradients along a dimension that is last, but not called -1, are an IndexError.
    theirs = value_and_gradients(
        lambda x: package.budget_bisect(x.movedim(dim, -1), budget).movedim(-1, dim), scores
    )
    assert_close(ours[0], theirs[0], **NEAR)
    # The package's entries at 0 and 1 may miss them by a rounding error and then count as free.
    clear = ((theirs[0] - 0.5).abs() < 0.5 - 1e-6) | (theirs[0] == 0) | (theirs[0] == 1)
    rows = clear.all(dim, keepdim=True)
    assert_close(ours[1] * rows, theirs[1] * rows, **NEAR)
    assert rows.any() or budget in (0, scores.shape[dim])


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("n", [1, 2, 31, 1000])
def test_budget_agrees_with_brute_force(n, scale):
    scores = randn(5, n, scale=scale)
    for budget in (0.3, 1, n / 2, n - 0.25):
        weights = budget_bisect(scores, budget)
        expected = min(budget, n)
        assert_close(weights, brute_budget(scores, expected), rtol=0, atol=1e-14 * scale + 1e-12)
        assert_close(weights.sum(-1), torch.full((5,), float(expected), dtype=torch.float64))


@pytest.mark.parametrize(("budget", "value"), [(5, 1.0), (100, 1.0), (0, 0.0), (-2, 0.0)])
def test_budgets_out_of_reach_give_the_nearest(budget, value):
    scores = randn(3, 5)
    weights, gradient = value_and_gradients(lambda x: budget_bisect(x, budget), scores)
    assert torch.equal(weights, torch.full_like(scores, value))
    assert not gradient.any()
    assert_close(weights, package.budget_bisect(scores, budget))


def test_budget_of_1_is_sparsemax():
    scores = randn(6, 20, scale=2.0)
    assert_close(budget_bisect(scores, 1), sparsemax_bisect(scores))


def test_masked_entries_count_for_no_budget():
    scores = randn(4, 8)
    scores[0, 3:] = -torch.inf
    scores[1, 2:] = -torch.inf
    scores[2] = -torch.inf
    weights = budget_bisect(scores, 2.5)
    assert_close(weights[0, :3], budget_bisect(scores[0, :3], 2.5))
    assert_close(weights.sum(-1), torch.tensor([2.5, 2.0, 0.0, 2.5], dtype=torch.float64))
    assert not weights[scores.isneginf()].any()


def test_one_budget_per_row():
    scores, budget = randn(5, 6, 7), rand(5, 1, 7, low=0.0, high=6.0)
    assert_close(budget_bisect(scores, budget, 1).sum(1, keepdim=True), budget)
    assert_close(budget_bisect(scores, budget, 1), package.budget_bisect(scores, budget, 1), **NEAR)


@pytest.mark.parametrize("budget", range(7))
def test_budget_gradients(budget):
    scores = randn(4, 6).requires_grad_()
    assert gradcheck(lambda x: budget_bisect(x, budget), (scores,))


# all of them

FUNCTIONS = [sparsemax_bisect, entmax_bisect, normmax_bisect, budget_bisect]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_masked_entries_are_zero(function):
    scores = randn(2, 6, dtype=torch.float32)
    scores[:, 3:] = -torch.inf
    weights = function(scores)
    assert not weights[:, 3:].any()
    assert_close(weights[:, :3], function(scores[:, :3]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_fully_masked_rows_are_zero(function):
    scores = randn(3, 5, dtype=torch.float32)
    scores[1] = -torch.inf
    weights, gradient = value_and_gradients(function, scores)
    assert not weights[1].any()
    assert not gradient[1].any()
    assert_close(weights[::2], function(scores[::2]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_bad_score_spoils_its_row_alone(function, bad):
    scores = randn(3, 5)
    scores[1, 2] = bad
    weights = function(scores)
    assert weights[1].isnan().all()
    assert_close(weights[::2], function(scores[::2]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_half_precision_is_the_rounded_result(function, dtype):
    scores = randn(4, 33, dtype=dtype, scale=2.0)
    weights = function(scores)
    assert weights.dtype == dtype
    assert_close(
        weights, function(scores.double()).to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps
    )
    _, gradient = value_and_gradients(function, scores)
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_shapes(function):
    assert function(torch.zeros(0, 4)).shape == (0, 4)
    assert function(torch.zeros(4, 0)).shape == (4, 0)
    assert function(torch.tensor(3.0)) == 1
    scores = randn(6, 8, 10)
    assert_close(function(scores.mT, dim=1), function(scores).mT)


def test_many_rows_are_the_rows(monkeypatch):
    scores = randn(50, 20, dtype=torch.float32)
    whole = normmax_bisect(scores, 1.5), budget_bisect(scores)
    monkeypatch.setattr(root_finding, "_CHUNK", 64)
    assert_close((normmax_bisect(scores, 1.5), budget_bisect(scores)), whole)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (SparsemaxBisect(0, 30), lambda x: sparsemax_bisect(x, 0)),
        (EntmaxBisect(1.25, 0, 30), lambda x: entmax_bisect(x, 1.25, 0)),
        (NormmaxBisect(3, 0, 30), lambda x: normmax_bisect(x, 3, 0)),
        (BudgetBisect(1.5, 0, 30), lambda x: budget_bisect(x, 1.5, 0)),
    ],
    ids=["SparsemaxBisect", "EntmaxBisect", "NormmaxBisect", "BudgetBisect"],
)
def test_modules_call_their_functions(module, expected):
    scores = randn(4, 5)
    assert torch.equal(module(scores), expected(scores))


def test_a_parameter_is_trained():
    module = EntmaxBisect(torch.nn.Parameter(torch.tensor(1.3)))
    module(randn(3, 5))[:, 0].sum().backward()
    assert [name for name, _ in module.named_parameters()] == ["alpha"]
    assert module.alpha.grad.isfinite()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_iterations_change_nothing_but_must_be_a_count(function):
    scores = randn(3, 5)
    assert torch.equal(function(scores, n_iter=1), function(scores))
    with pytest.raises(ValueError, match=r"n_iter must be None or an integer.*got 0\."):
        function(scores, n_iter=0)


@pytest.mark.parametrize(
    ("function", "name"), [(normmax_bisect, "alpha"), (budget_bisect, "budget")]
)
def test_values_per_row_must_fit(function, name):
    with pytest.raises(ValueError, match=rf"{name} must be a number or.*\(3, 1\).*got \(5,\)"):
        function(randn(3, 5), torch.full((5,), 2.0))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_integers_are_no_scores(function):
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        function(torch.arange(3))
