import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.autograd import gradcheck, gradgradcheck

from adasparse import entmax
from adasparse.functional import backends
from adasparse.kernels import cpu
from support.helpers import ALPHAS, BACKENDS, assert_near, oracle, randn


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 7), (2, 5, 129), (2, 3, 4, 33)], ids=str)
def test_agrees_with_reference(shape, alpha, dtype, backend):
    scores = randn(shape, dtype=dtype)
    weights = entmax(scores, alpha, backend=backend)
    assert weights.dtype == dtype
    assert_near(weights, oracle(scores, alpha))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [1.0, 1.0001, 1.05, 1.5, 2.0, 3.0])
def test_gradients_of_both_orders(alpha, backend):
    scores = randn((4, 6), dtype=torch.float64).requires_grad_()
    # One-sided differences are not to be had at the lowest alpha.
    alpha = torch.tensor(max(alpha, 1.00001), dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s, a: entmax(s, a, backend=backend), (scores, alpha))
    assert gradgradcheck(lambda s, a: entmax(s, a, backend=backend), (scores, alpha))


def test_second_order_gradient_by_scores_at_alpha_one():
    scores = randn((4, 6), dtype=torch.float64).requires_grad_()
    assert gradgradcheck(lambda s: entmax(s, 1.0), (scores,))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [2, 65, 4000])
def test_alpha_gradient_in_float32(n, alpha, backend):
    scores, grad = randn((50, n)), randn((50, n), seed=1)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        exact = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        used = "torch" if dtype == torch.float64 else backend
        weights = entmax(scores.to(dtype), exact, backend=used)
        gradients.append(torch.autograd.grad(weights, exact, grad.to(dtype))[0])
    assert abs(gradients[0] - gradients[1]) <= 1e-4 * abs(gradients[1])


def test_alpha_gradient_near_one_is_that_of_one():
    # The textbook formula divides by (alpha - 1)^2 and gave -1653 here where the truth is near 1.
    scores, grad = randn((1, 20)), randn((1, 20), seed=3)
    slopes = []
    for eps in (0.0, 1e-6, 1e-5, 1e-4):
        alpha = torch.tensor(1 + eps, dtype=torch.float64, requires_grad=True)
        slopes.append(torch.autograd.grad(entmax(scores, alpha), alpha, grad)[0].item())
    assert slopes == pytest.approx([slopes[0]] * 4, rel=1e-3)


@given(
    hnp.arrays(
        "float32",
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40),
        elements=st.floats(-50, 50, width=32),
    ),
    st.sampled_from(ALPHAS),
    st.floats(-30, 30, width=16),
)
def test_properties(array, alpha, shift):
    scores = torch.from_numpy(array)
    weights = entmax(scores, alpha)
    assert (weights >= 0).all()
    assert_near(weights.double().sum(-1).float(), torch.ones(len(scores)))
    # Float32 holds the shifted scores only to so many digits.
    assert_near(entmax(scores + shift, alpha), weights, scale=50 if alpha <= 2 else 5000)
    assert_near(entmax(scores.flip(-1), alpha).flip(-1), weights, scale=2)
    order = scores.argsort(-1)
    assert (weights.gather(-1, order).diff(dim=-1) >= -1e-6).all()


def test_ends_are_softmax_and_sparsemax():
    scores = randn((5, 100))
    assert_near(entmax(scores, 1.0), scores.double().softmax(-1))
    top = scores.double().sort(descending=True).values
    k = torch.arange(1, 101)
    size = ((1 + k * top) > top.cumsum(-1)).sum(-1, keepdim=True)
    threshold = (top.cumsum(-1).gather(-1, size - 1) - 1) / size
    assert_near(entmax(scores, 2.0), (scores.double() - threshold).clamp(min=0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_masks_are_exact_and_never_nan(alpha, dtype, backend):
    scores = randn((6, 33), dtype=dtype)
    masked = randn((6, 33), seed=2) > 0
    masked[0] = True
    scores = scores.masked_fill(masked, -torch.inf).requires_grad_()
    exponent = torch.tensor(alpha, requires_grad=True)
    weights = entmax(scores, exponent, backend=backend)
    assert (weights[masked] == 0).all()
    assert (weights[0] == 0).all()
    weights.backward(randn((6, 33), dtype=dtype, seed=4))
    assert scores.grad.isfinite().all()
    assert (scores.grad[masked] == 0).all()
    assert exponent.grad.isfinite()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_large_scores(alpha):
    scores = 1e4 * randn((8, 500)).clamp(-1, 1)
    weights = entmax(scores, alpha)
    assert_near(weights, oracle(scores, alpha))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_any_dimension_and_any_strides(dim):
    scores = randn((4, 6, 10)).transpose(0, 1)[:, ::2, 1:]
    assert not scores.is_contiguous()
    expected = oracle(scores.movedim(dim, -1), 1.5).movedim(-1, dim)
    assert_near(entmax(scores, 1.5, dim), expected)


def test_alpha_broadcasts_and_gets_its_own_gradient():
    scores = randn((2, 3, 4, 7), dtype=torch.float64).requires_grad_()
    alpha = torch.tensor([1.2, 1.5, 1.8], dtype=torch.float64).reshape(3, 1, 1).requires_grad_()
    weights = entmax(scores, alpha)
    for head in range(3):
        assert_near(weights[:, head].detach(), oracle(scores.detach()[:, head], alpha[head].item()))
    grad = randn((2, 3, 4, 7), dtype=torch.float64, seed=1)
    weights.backward(grad)
    for head in range(3):
        single = alpha[head].detach().reshape(()).requires_grad_()
        entmax(scores[:, head].detach(), single).backward(grad[:, head])
        assert alpha.grad[head].item() == pytest.approx(single.grad.item(), rel=1e-10)


def test_alpha_along_another_dimension():
    scores = randn((5, 3))
    alpha = torch.tensor([[1.0, 1.5, 2.0]])
    weights = entmax(scores, alpha, dim=0)
    for column, value in enumerate((1.0, 1.5, 2.0)):
        assert_near(weights[:, column], oracle(scores[:, column], value))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_empty_inputs(shape):
    scores = torch.zeros(shape, requires_grad=True)
    alpha = torch.tensor(1.5, requires_grad=True)
    weights = entmax(scores, alpha)
    assert weights.shape == shape
    weights.sum().backward()
    assert scores.grad.shape == shape
    assert alpha.grad == 0


def test_one_element_is_certain():
    assert entmax(torch.tensor(3.0), 1.7) == 1
    assert entmax(torch.tensor([[-5.0]]), 1.2).item() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gradients(dtype):
    scores, grad = randn((9, 50), dtype=dtype), randn((9, 50), dtype=dtype, seed=1)
    for alpha in (1.0, 1.3, 1.5, 2.0):
        half, double = scores.clone().requires_grad_(), scores.double().requires_grad_()
        entmax(half, alpha).backward(grad)
        entmax(double, alpha).backward(grad.double())
        # Scores, weights and gradients are each rounded to this dtype: eight roundings are allowed.
        allowed = 8 * torch.finfo(dtype).eps * double.grad.abs().max()
        assert (half.grad - double.grad).abs().max() <= allowed


def test_non_finite_gradients_stay_inside_the_support():
    scores = torch.tensor([[5.0, 0.0, 4.9]], requires_grad=True)
    entmax(scores, 1.5).backward(torch.tensor([[1.0, torch.inf, 2.0]]))
    assert scores.grad.isfinite().all()


def test_under_autocast_the_dtype_is_kept():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        linear = torch.nn.Linear(8, 8)
        scores = linear(randn((4, 8)))
        weights = entmax(scores, 1.5)
        assert weights.dtype == scores.dtype == torch.bfloat16
        (weights @ randn((8, 8))).sum().backward()
    assert linear.weight.grad.isfinite().all()


@pytest.mark.parametrize(
    "compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_compiles_without_a_break(compiler):
    @torch.compile(fullgraph=True, backend=compiler)
    def run(scores, alpha):
        return entmax(scores * 2, alpha, dim=0).square().sum()

    scores = randn((6, 5)).requires_grad_()
    alpha = torch.tensor(1.4, requires_grad=True)
    gradients = torch.autograd.grad(run(scores, alpha), (scores, alpha))
    eager = torch.autograd.grad(entmax(scores * 2, alpha, dim=0).square().sum(), (scores, alpha))
    for actual, expected in zip(gradients, eager, strict=True):
        assert_near(actual, expected, scale=10)


def test_compiles_with_a_fixed_alpha():
    scores = randn((6, 5))
    assert torch.equal(
        torch.compile(entmax, fullgraph=True, backend="aot_eager")(scores, 1.5), entmax(scores, 1.5)
    )


@pytest.mark.parametrize("name", ["entmax", "entmax_backward"])
def test_registered_operators_pass_opcheck(name):
    scores = randn((3, 5)).requires_grad_()
    alpha = torch.tensor(1.5, requires_grad=True)
    if name == "entmax":
        torch.library.opcheck(torch.ops.adasparse.entmax.default, (scores, alpha, 1.0, "auto"))
    else:
        weights = entmax(scores, alpha).detach()
        arguments = (weights, randn((3, 5), seed=1), alpha.detach(), True, "auto")
        torch.library.opcheck(torch.ops.adasparse.entmax_backward.default, arguments)


def test_vmap_and_grad():
    scores = randn((4, 3, 6), dtype=torch.float64)
    assert_near(torch.func.vmap(entmax)(scores), entmax(scores))
    assert_near(torch.func.vmap(entmax, in_dims=1, out_dims=1)(scores), entmax(scores))
    alphas = torch.tensor([1.1, 1.5, 1.9, 2.0], dtype=torch.float64)
    assert_near(torch.func.vmap(entmax)(scores, alphas), entmax(scores, alphas[:, None, None]))
    assert_near(
        torch.func.vmap(entmax, in_dims=(None, 0))(scores[0], alphas),
        entmax(scores[0].expand(4, 3, 6), alphas[:, None, None]),
    )

    def loss(s, a):
        return entmax(s, a)[..., 0].sum()

    by_scores, by_alpha = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(scores, alphas)
    s, a = scores.clone().requires_grad_(), alphas.clone().requires_grad_()
    expected = torch.autograd.grad(loss(s, a[:, None, None]), (s, a))
    assert_near(by_scores, expected[0])
    assert_near(by_alpha, expected[1], scale=10)


def test_meta_and_fake_tensors_have_shapes():
    assert entmax(torch.empty(3, 4, device="meta"), 1.5).shape == (3, 4)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert entmax(torch.empty(3, 4), 1.5).shape == (3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(3), 0.9), ValueError, r"at least 1 and finite; got 0\.9"),
        ((torch.zeros(3), math.nan), ValueError, "got nan"),
        ((torch.zeros(3), torch.tensor(0.5)), ValueError, r"at least 1 and finite; got 0\.5"),
        ((torch.zeros(3), "1.5"), TypeError, "got str"),
        ((torch.zeros(3), torch.tensor(2)), TypeError, r"got torch\.int64"),
        ((torch.zeros(3, 4), torch.ones(4)), ValueError, r"broadcast to \(3, 1\).*got \(4,\)"),
        ((torch.zeros(3, dtype=torch.int64), 1.5), TypeError, r"got torch\.int64"),
        ((torch.zeros(3), 1.5, 1), IndexError, "from -1 to 0; got 1"),
        ((torch.zeros(3), 10**400), ValueError, "at least 1 and finite; got 1000"),
        ((torch.zeros(3), 1.5, 0.5), TypeError, "dim must be an integer; got float"),
        ((torch.zeros(3), 1.5, None), TypeError, "dim must be an integer; got NoneType"),
        (([1.0, 2.0], 1.5), TypeError, "got list"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        entmax(*arguments)


def test_a_dimension_may_be_an_integer_of_numpy():
    scores = randn((3, 4))
    assert torch.equal(entmax(scores, dim=np.int64(0)), entmax(scores, dim=0))


def test_unknown_backend():
    with pytest.raises(ValueError, match="got 'cuda'"):
        entmax(torch.zeros(3), backend="cuda")


def test_without_compiled_kernels_pytorch_is_used_with_one_warning(monkeypatch):
    scores = randn((3, 5))
    expected = entmax(scores, 1.5)
    monkeypatch.setattr(cpu.native, "extension", None)
    monkeypatch.setattr(cpu, "missing_reason", "not built")
    monkeypatch.setattr(backends, "_has_warned", False)
    with pytest.warns(RuntimeWarning, match="not built"):
        assert_near(entmax(scores, 1.5), expected)
    assert_near(entmax(scores, 1.5), expected)  # a second warning would be an error
    with pytest.raises(RuntimeError, match="not built"):
        entmax(scores, 1.5, backend="cpu")


def test_called_from_several_threads():
    from concurrent.futures import ThreadPoolExecutor

    scores = [randn((200, 300), seed=i) for i in range(8)]
    expected = [entmax(s, 1.4) for s in scores]
    with ThreadPoolExecutor(4) as pool:
        for actual, wanted in zip(
            pool.map(lambda s: entmax(s, 1.4), scores), expected, strict=True
        ):
            assert torch.equal(actual, wanted)
