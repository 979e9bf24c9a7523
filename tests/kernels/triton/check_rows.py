"""Rows and losses by the Triton kernels."""

import pytest
import torch

from adasparse.kernels import reference
from adasparse.kernels.problem import LossProblem
from adasparse.kernels.triton import (
    empty_loss_saved,
    entmax_backward,
    entmax_forward,
    loss_backward,
    loss_forward,
)
from support.triton_problems import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

ALPHAS = torch.tensor([1.0, 1 + 1e-6, 1.0001, 1.05, 1.3, 1.5, 1.75, 2.0, 1.5], dtype=torch.float64)


def scores_of(rows, n, *, spread=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(n)
    return spread * torch.randn(rows, n, generator=generator) + shift


def assert_rows_agree(scores, alpha):
    grad = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1))
    device_alpha = alpha if alpha.numel() == 1 else alpha.to(DEVICE)
    weights = entmax_forward(scores.to(DEVICE), device_alpha)
    by_scores, by_alpha = entmax_backward(weights, grad.to(DEVICE), device_alpha, with_alpha=True)
    expected = reference.entmax_forward(scores.double(), alpha)
    wanted, wanted_alpha = reference.entmax_backward(
        expected, grad.double(), alpha, with_alpha=True
    )
    assert (weights.cpu() - expected).abs().max() <= 1e-6
    assert torch.allclose(weights.cpu().double().sum(-1), expected.sum(-1), atol=1e-5)
    assert (by_scores.cpu() - wanted).abs().max() <= 1e-5 * wanted.abs().max() + 1e-6
    # A gradient of 1e-3 may be the sum of half a million terms that add up to 100.
    terms = (expected * expected.clamp_min(1e-300).log().square() * grad).abs().sum(-1).max()
    allowed = 1e-4 * wanted_alpha.abs().max() + 1e-6 + 1e-8 * terms
    assert (by_alpha.cpu() - wanted_alpha).abs().max() <= allowed


@pytest.mark.parametrize("n", [1, 17, 65, 300])
def test_rows_of_any_alpha(n):
    scores = scores_of(len(ALPHAS), n, spread=3.0, shift=50.0)
    scores[-1, n // 2 :] = -torch.inf
    assert_rows_agree(scores, ALPHAS)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_one_alpha_with_a_map_of_its_own(alpha):
    assert_rows_agree(scores_of(3, 300), torch.tensor(alpha, dtype=torch.float64))


@pytest.mark.slow
def test_long_row():
    assert_rows_agree(scores_of(1, 2**17 + 1), ALPHAS[5:6])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0001, 1.3, 1.75])
def test_very_long_row(alpha):
    assert_rows_agree(scores_of(1, 2**19 + 3), torch.tensor([alpha], dtype=torch.float64))


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("n", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_small_weights_in_great_number(n, alpha):
    """The rounding of a normalizer added up over them, to 1e-3 of the large one."""
    alpha = torch.tensor(alpha, dtype=torch.float64)
    scores = torch.zeros(3, n)
    scores[:, n // 3] = torch.tensor([0.3, 0.9, 0.999])
    expected = reference.entmax_forward(scores.double(), alpha)
    weights = entmax_forward(scores.to(DEVICE), alpha)
    assert ((weights.cpu() - expected).abs() <= 2e-6 * expected.amax(-1, keepdim=True)).all()
    problem = LossProblem(scores=scores.to(DEVICE), alpha=alpha, index=torch.zeros(3).long())
    _, saved = loss_forward(problem)
    grad = torch.ones(3, dtype=torch.float64, device=DEVICE)
    by_scores, _ = loss_backward(problem, saved, grad, with_alpha=False)
    expected[:, 0] -= 1
    assert (by_scores.cpu() - expected).abs().max() <= 2e-6


@pytest.mark.parametrize("n", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_equal_scores_in_great_number(n):
    """Of an alpha in a tensor: weights were wrong by 2e-5 to 3e-4, as were their sums."""
    alpha = torch.tensor([1.3, 1.7, 1.9, 2.0, 1.9], dtype=torch.float64)
    scores = torch.zeros(5, n)
    scores[-1, n // 3] = 0.9
    weights = entmax_forward(scores.to(DEVICE), alpha.to(DEVICE)).cpu()
    assert ((n * weights[:-1] - 1).abs() <= 5e-6).all()
    assert abs(weights[-1].double().sum() - 1) <= 5e-6


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_rows_without_scores_and_with_nan(alpha):
    scores = scores_of(4, 100)
    scores[0] = -torch.inf
    scores[1, 5] = float("nan")
    scores[2, 7] = torch.inf
    alpha = torch.tensor(alpha, dtype=torch.float64)
    weights = entmax_forward(scores.to(DEVICE), alpha)
    by_scores, _ = entmax_backward(weights, torch.ones_like(weights), alpha, with_alpha=False)
    assert weights[0].abs().max() == 0 and by_scores[0].abs().max() == 0
    assert weights[1:3].isnan().all() and not weights[3].isnan().any()


def test_bfloat16_rows():
    scores = scores_of(2, 300).bfloat16()
    alpha = torch.tensor(1.5, dtype=torch.float64)
    weights = entmax_forward(scores.to(DEVICE), alpha)
    expected = reference.entmax_forward(scores.double(), alpha)
    assert weights.dtype == torch.bfloat16
    assert (weights.cpu() - expected).abs().max() <= 2**-9


@pytest.mark.parametrize("n", [17, 300])
@pytest.mark.parametrize("has_probabilities", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_loss(n, has_probabilities, label_smoothing):
    alpha = torch.tensor([1.0, 1.0001, 1.05, 1.3, 1.5, 2.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(n)
    scores = scores_of(6, n, spread=2.0, shift=20.0)
    index = torch.randint(0, n, (6,), generator=generator)
    index[2] = -100
    scores[2, 3] = float("nan")
    probability = torch.rand(6, n, generator=generator).softmax(-1)
    if has_probabilities:
        scores[2] = scores[3]
    options = {"probability": probability} if has_probabilities else {"index": index}
    options["weight"] = torch.rand(n, generator=generator)
    moved = {name: x.to(DEVICE) for name, x in options.items()}
    problem, on_device = (
        LossProblem(scores=s, alpha=a, label_smoothing=label_smoothing, **o)
        for s, a, o in ((scores, alpha, options), (scores.to(DEVICE), alpha.to(DEVICE), moved))
    )
    loss, saved = loss_forward(on_device)
    grad = torch.ones(6, dtype=torch.float64, device=DEVICE)
    by_scores, by_alpha = loss_backward(on_device, saved, grad, with_alpha=True)
    wanted, kept = reference.loss_forward(problem)
    wanted_scores, wanted_alpha = reference.loss_backward(
        problem, kept, grad.cpu(), with_alpha=True
    )
    assert (loss.cpu() - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    assert (by_scores.cpu() - wanted_scores).abs().max() <= 1e-6
    assert (by_alpha.cpu() - wanted_alpha).abs().max() <= 1e-4 * wanted_alpha.abs().max()
    empty = empty_loss_saved(on_device)
    assert {k: (v.shape, v.dtype) for k, v in vars(empty).items()} == {
        k: (v.shape, v.dtype) for k, v in vars(saved).items()
    }


def test_loss_at_the_ends():
    scores = scores_of(4, 65)
    index = torch.tensor([3, 0, 64, -100])
    scores[1, 0] = -torch.inf
    alpha = torch.tensor(1.0, dtype=torch.float64)
    problem = LossProblem(scores=scores.to(DEVICE), alpha=alpha, index=index.to(DEVICE))
    loss, _ = loss_forward(problem)
    expected = torch.nn.functional.cross_entropy(scores, index, reduction="none")
    assert loss[1].isposinf() and loss[3] == 0
    assert torch.allclose(loss.cpu().float(), expected, atol=1e-5)
