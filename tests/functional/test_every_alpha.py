"""Every alpha from 1 to 1,000 is exact: weights, and gradients with respect to scores and alpha."""

import math

import numpy as np
import pytest
import torch

from adasparse.functional import entmax, entmax_attention, entmax_loss
from adasparse.kernels import reference
from support.long_double import entmax_row, entmax_row_gradients

BACKENDS = ("cpu", "torch")
ALPHAS = (1.0, 1.0001, 1.5, 1.9, 2.0, 2.001, 2.5, 3.0, 4.0, 6.0, 8.0, 15.0, 30.0, 100.0, 317.5, 1e3)
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}


def rows_of(alpha):
    """Rows with one score apart, several at the scale of the support, ties, and masked ones."""
    random = np.random.default_rng(round(1000 * alpha))
    size = 1 / max(alpha - 1, 0.2)
    rows = [
        [0.0, -0.1425 * size],
        [0.3, 0.3 - 0.9 * size],
        [0.0, -1e-4 * size, -2.0],
        [1.0, 1.0, 1.0],
        [0.0, -0.3 * size, -0.3 * size, -0.9 * size],
        [0.0, -0.5 * size, -math.inf, -0.51 * size],
    ]
    return [np.array(row) for row in rows] + [
        random.uniform(-2 * size, 0, n) for n in (2, 3, 5, 40)
    ]


def near(got, want, tolerance, dtype=torch.float64):
    got, want = np.ravel(got).astype(np.float64), np.ravel(want).astype(np.float64)
    limit = torch.finfo(dtype).max
    is_beyond = abs(want) >= limit
    assert (np.isinf(got) & (np.sign(got) == np.sign(want)))[is_beyond].all()
    scale = max(1.0, abs(want[~is_beyond]).max(initial=0))
    np.testing.assert_allclose(got[~is_beyond], want[~is_beyond], rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_weights_and_gradients_are_exact(alpha, dtype, backend):
    for row in rows_of(alpha):
        scores = torch.tensor(row, dtype=dtype, requires_grad=True)
        wide_alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        weights = entmax(scores, wide_alpha, backend=backend)
        expected = entmax_row(scores.detach().double().numpy(), alpha)
        near(weights.detach(), expected, TOLERANCES[dtype])
        grad = torch.linspace(-1, 1, len(row), dtype=dtype).cos() + torch.arange(len(row)) % 3
        weights.backward(grad)
        by_score, by_alpha, size = entmax_row_gradients(expected, grad.numpy(), alpha)
        near(scores.grad, by_score, TOLERANCES[dtype], dtype)
        near(wide_alpha.grad, by_alpha, TOLERANCES[dtype] * size)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_reference_is_exact(alpha):
    for row in rows_of(alpha):
        scores, wide = torch.tensor(row)[None], torch.tensor(alpha, dtype=torch.float64)
        weights = reference.entmax_forward(scores, wide)
        expected = entmax_row(row, alpha)
        near(weights[0], expected, 1e-12)
        grad = torch.linspace(-1, 1, len(row), dtype=torch.float64).cos()
        got = reference.entmax_backward(weights, grad[None], wide, with_alpha=True)
        by_score, by_alpha, size = entmax_row_gradients(expected, grad.numpy(), alpha)
        near(got[0][0], by_score, 1e-12)
        near(got[1], by_alpha, 1e-12 * size)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_scores_at_alpha_8(backend):
    """A normalizer in float64 gave [.9942, .0058]."""
    weights = entmax(torch.tensor([0, -0.1425]), 8.0, backend=backend)
    torch.testing.assert_close(weights, torch.tensor([0.99964, 0.00036]), atol=5e-6, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_different_alphas(backend):
    alpha = torch.tensor([[1.0], [8.0], [1.5], [2.0], [300.0]], dtype=torch.float64)
    scores = torch.tensor([0.0, -0.001, -0.1, -0.12], dtype=torch.float64).expand(5, 4)
    scores = scores.clone().requires_grad_()
    weights = entmax(scores, alpha, backend=backend)
    grad = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    weights.backward(grad.expand(5, 4))
    for i in range(5):
        expected = entmax_row(scores[i].detach().numpy(), alpha[i].item())
        near(weights[i].detach(), expected, 1e-12)
        near(scores.grad[i], entmax_row_gradients(expected, grad, alpha[i].item())[0], 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [2.5, 4.0, 8.0, 40.0])
def test_second_derivatives_above_2(alpha, backend):
    scores = torch.tensor([[0.0, -0.31, -0.5, 0.02], [0.1, 0.3, -3.0, 0.25]], dtype=torch.float64)
    scores = (scores / (alpha - 1)).requires_grad_()
    wide_alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    weights = entmax(scores, wide_alpha, backend=backend)
    grad = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64)
    first = torch.autograd.grad((weights * grad).sum(), (scores, wide_alpha), create_graph=True)
    direction = torch.tensor([0.7, -0.2, 0.4, 0.9], dtype=torch.float64)
    second = torch.autograd.grad((first[0] * direction).sum() + first[1], (scores, wide_alpha))

    def value(s, a):
        w = entmax(s, a, backend=backend)
        by = torch.autograd.grad((w * grad).sum(), (s, a))
        return ((by[0] * direction).sum() + by[1]).item()

    step = 1e-6 / (alpha - 1)
    for i, j in ((0, 0), (0, 1), (1, 3)):
        moved = []
        for sign in (1, -1):
            s = scores.detach().clone()
            s[i, j] += sign * step
            moved.append(value(s.requires_grad_(), wide_alpha.detach().requires_grad_()))
        expected = (moved[0] - moved[1]) / (2 * step)
        assert second[0][i, j].item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [2.5, 8.0, 60.0, 1000.0])
@pytest.mark.parametrize("keys", [7, 300])
def test_attention_is_exact(keys, alpha, backend):
    """Queries and keys are small whole numbers and the scale is a power of two: exact scores."""
    torch.manual_seed(round(alpha) + keys)
    query = torch.randint(-4, 5, (1, 2, 5, 8)).float().requires_grad_()
    key = torch.randint(-4, 5, (1, 2, keys, 8)).float().requires_grad_()
    value = torch.randn(1, 2, keys, 3, requires_grad=True)
    wide_alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    scale = 2.0 ** -round(math.log2(alpha) + 3)
    got = entmax_attention(query, key, value, alpha=wide_alpha, scale=scale, backend=backend)
    grad = torch.randint(-2, 3, got.shape).float()
    gradients = torch.autograd.grad(got, (value, wide_alpha, query), grad)
    scores = (scale * query @ key.mT).detach().double()
    weights = torch.zeros_like(scores)
    by_scores, by_alpha = torch.zeros_like(scores), 0.0
    by_weights = grad.double() @ value.detach().double().mT
    for at in np.ndindex(*scores.shape[:3]):
        row = entmax_row(scores[at].numpy(), alpha)
        weights[at] = torch.tensor(row.astype(float))
        one, other, _ = entmax_row_gradients(row, by_weights[at].numpy(), alpha)
        by_scores[at] = torch.tensor(one)
        by_alpha += other
    near(got.detach(), weights @ value.detach().double(), 1e-6)
    near(gradients[0], weights.mT @ grad.double(), 1e-6)
    if by_scores.isfinite().all() and by_scores.abs().max() < 1e30:
        near(gradients[2], scale * by_scores @ key.detach().double(), 1e-6)
        near(gradients[1], by_alpha, 1e-6 * 10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [3.0, 8.0, 100.0, 1000.0])
def test_the_loss_is_exact(alpha, backend):
    for row in rows_of(alpha)[:5]:
        scores = torch.tensor(row[None], requires_grad=True)
        wide_alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        loss = entmax_loss(scores, torch.tensor([1]), wide_alpha, backend=backend)
        p = entmax_row(row, alpha)
        positive = p[p > 0]
        entropy = (positive - positive ** np.longdouble(alpha)).sum() / (alpha * (alpha - 1))
        expected = (p[p > 0] * (row - row[1])[p > 0]).sum() + entropy
        near(loss.item(), float(expected), 1e-12)
        loss.backward()
        p[1] -= 1
        near(scores.grad[0], p, 1e-12)


@pytest.mark.parametrize("alpha", [2.5, 5.0])
@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
def test_dense_heads_above_2(dropout_p, alpha):
    """So many keys have weight that the backward pass of the kernel recomputes them."""
    torch.manual_seed(5)
    inputs = [torch.randint(-3, 4, (1, 2, n, 4)).double() for n in (30, 700, 700)]
    results = []
    for backend in BACKENDS:
        leaves = [x.clone().requires_grad_() for x in inputs]
        wide_alpha = torch.tensor([alpha, 3.0], dtype=torch.float64, requires_grad=True)
        torch.manual_seed(6)
        out = entmax_attention(
            *leaves, alpha=wide_alpha, scale=2.0**-22, dropout_p=dropout_p, backend=backend
        )
        gradients = torch.autograd.grad(out, (*leaves, wide_alpha), torch.ones_like(out))
        results.append((out.detach(), *gradients))
    for got, expected in zip(*results, strict=True):
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(got / scale, expected / scale, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("n", [50, 100, 1_000, 10_000, 100_000])
def test_small_weights_in_great_number(n, alpha, backend):
    """The rounding of a normalizer added up over them, to 5e-3 of the large one at n = 100,000."""
    gaps = torch.tensor([0.3, 0.9, 0.999, 0.0])
    one_hot = torch.nn.functional.one_hot(torch.tensor([n // 3, 0]), n).float()
    scores = gaps[:, None] * one_hot[0]
    scores[3] = 1e-4 * torch.randn(n, generator=torch.Generator().manual_seed(n))
    expected = reference.entmax_forward(scores.double(), torch.tensor(alpha).double())
    allowed = 1e-6 * expected.amax(-1, keepdim=True)
    weights = entmax(scores, alpha, backend=backend)
    assert ((weights - expected).abs() <= allowed).all()
    scores.requires_grad_()
    entmax_loss(scores, torch.zeros(4).long(), alpha, reduction="sum", backend=backend).backward()
    assert ((scores.grad + one_hot[1] - expected).abs() <= allowed + 1e-7).all()
    keys, values = one_hot[:1].T[None, None], one_hot.T[None, None]
    query = gaps[:3].reshape(1, 1, 3, 1)
    got = entmax_attention(query, keys, values, alpha=alpha, scale=1.0, backend=backend)[0, 0]
    assert ((got - expected[:3][:, [n // 3, 0]]).abs() <= allowed[:3]).all()
