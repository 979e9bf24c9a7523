"""Gradients with respect to alpha, from softmax to sparsemax."""

import pytest
import torch

from support.triton_problems import assert_agrees, expected, make
from support.triton_problems import computed as compute

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

ALPHAS = [1.0, 1 + 1e-6, 1.0001, 1.01, 1.1, 1.5, 2.0]


def test_gradient_of_mixed_heads():
    problem, grad = make(h=7, alpha=ALPHAS, q=17, k=129, spread=1.0)
    found, wanted = (f(problem, grad)["alpha"].flatten() for f in (compute, expected))
    assert ((found - wanted).abs() <= 1e-4 * wanted.abs().clamp(min=1e-3)).all()


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_gradient_of_one_alpha_with_a_map_of_its_own(alpha):
    assert_agrees(*make(h=1, alpha=alpha, q=17, k=65))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradient_of_every_spread(alpha, spread):
    problem, grad = make(h=1, alpha=[alpha], q=33, k=200, spread=spread)
    found, wanted = (f(problem, grad)["alpha"] for f in (compute, expected))
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max() + 1e-6


@pytest.mark.slow
def test_gradient_above_two():
    # Scores within a rounding of the edge of the support have steep weights there.
    problem, grad = make(h=2, alpha=[2.5, 3.0], q=17, k=129, spread=1.0)
    found, wanted = (f(problem, grad)["alpha"].flatten() for f in (compute, expected))
    assert ((found - wanted).abs() <= 1e-3 * wanted.abs()).all()


def test_softmax_is_the_limit():
    outputs = [
        compute(*make(h=1, alpha=[alpha], q=17, k=65))["output"] for alpha in (1.0, 1 + 1e-7)
    ]
    assert torch.allclose(*outputs, atol=1e-6)
