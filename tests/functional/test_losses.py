import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

from adasparse import entmax, entmax_loss
from adasparse.kernels import reference
from support.helpers import ALPHAS, BACKENDS, assert_near, randn

TARGET = torch.tensor([0, 3, -100, 5, 2])


def conjugate(scores, alpha):
    return reference.conjugate(scores.double(), torch.tensor([alpha], dtype=torch.float64))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_weight", [False, True])
def test_alpha_one_is_cross_entropy(reduction, smoothing, has_weight, backend):
    weight = randn((7,), seed=1).abs() if has_weight else None
    options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight}
    probabilities = randn((5, 7), seed=2).softmax(-1)
    for target in (TARGET, probabilities):
        ours, theirs = (randn((5, 7)).mul(3).requires_grad_() for _ in range(2))
        actual = entmax_loss(ours, target, 1.0, backend=backend, **options)
        expected = F.cross_entropy(theirs, target, **options)
        assert_near(actual.detach(), expected.detach(), scale=10)
        actual.sum().backward()
        expected.sum().backward()
        assert_near(ours.grad, theirs.grad, scale=3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_value_and_gradient(alpha, backend):
    scores = randn((6, 300)).mul(2).requires_grad_()
    target = torch.arange(6) * 40
    loss = entmax_loss(scores, target, alpha, reduction="none", backend=backend)
    expected = conjugate(scores.detach(), alpha) - scores.detach().double()[range(6), target]
    assert_near(loss.detach(), expected, scale=10)
    assert (loss >= -1e-6).all()
    loss.sum().backward()
    assert_near(scores.grad, entmax(scores.detach(), alpha) - F.one_hot(target, 300), scale=2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [1.00001, 1.05, 1.5, 2.0, 3.0])
def test_gradients_of_both_orders(alpha, backend):
    scores = randn((5, 6), dtype=torch.float64).requires_grad_()
    alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    weight = randn((6,), dtype=torch.float64, seed=1).abs()
    probabilities = randn((5, 6), dtype=torch.float64, seed=2).softmax(-1)
    for target in (TARGET, probabilities):

        def run(s, a, target=target):
            return entmax_loss(s, target, a, label_smoothing=0.1, weight=weight, backend=backend)

        assert gradcheck(run, (scores, alpha))
        assert gradgradcheck(run, (scores, alpha))


def test_alpha_gradient_in_float32_down_to_alpha_one():
    scores = randn((40, 1000))
    target = torch.arange(40)
    for alpha in ALPHAS:
        gradients = []
        for dtype in (torch.float32, torch.float64):
            exact = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
            entmax_loss(scores.to(dtype), target, exact).backward()
            gradients.append(exact.grad.item())
        assert gradients[0] == pytest.approx(gradients[1], rel=1e-4)


def test_zero_once_the_target_leads_by_enough():
    scores = torch.tensor([[2.01, 0.0, -1.0]], requires_grad=True)
    loss = entmax_loss(scores, torch.tensor([0]), 1.5)
    loss.backward()
    assert loss == 0
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("ignore_index", [-100, -1, 2, 10_000])
def test_ignored_rows_are_really_ignored(ignore_index):
    scores = randn((4, 5))
    scores[1] = torch.nan
    scores.requires_grad_()
    target = torch.tensor([0, ignore_index, 3, ignore_index])
    loss = entmax_loss(scores, target, 1.5, ignore_index=ignore_index)
    kept = entmax_loss(scores[[0, 2]].detach(), target[[0, 2]], 1.5)
    assert_near(loss.detach(), kept)
    loss.backward()
    assert (scores.grad[[1, 3]] == 0).all()
    nothing = entmax_loss(scores[[1]], target[[1]], 1.5, ignore_index=ignore_index)
    assert nothing == 0


def test_shapes_are_those_of_cross_entropy():
    scores = randn((2, 5, 3, 4))
    target = torch.randint(5, (2, 3, 4), generator=torch.Generator().manual_seed(0))
    loss = entmax_loss(scores, target, 1.0, reduction="none")
    assert_near(loss, F.cross_entropy(scores, target, reduction="none"), scale=10)
    assert_near(entmax_loss(scores, target, 1.0), F.cross_entropy(scores, target), scale=10)
    single = entmax_loss(scores[0, :, 0, 0], target[0, 0, 0], 1.0)
    assert_near(single, F.cross_entropy(scores[0, :, 0, 0], target[0, 0, 0]), scale=10)
    soft = randn((2, 5, 3, 4), seed=1).softmax(1)
    assert_near(entmax_loss(scores, soft, 1.0), F.cross_entropy(scores, soft) / 1.0, scale=10)


def test_alpha_per_row():
    scores = randn((3, 8), dtype=torch.float64)
    alpha = torch.tensor([[1.2], [1.5], [2.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1, 2, 3])
    losses = entmax_loss(scores, target, alpha, reduction="none")
    losses.sum().backward()
    for i in range(3):
        single = alpha[i].detach().reshape(()).requires_grad_()
        one = entmax_loss(scores[i : i + 1], target[i : i + 1], single)
        one.backward()
        assert_near(losses[i].detach(), one.detach())
        assert alpha.grad[i].item() == pytest.approx(single.grad.item(), rel=1e-10)


def test_masked_classes():
    scores = randn((2, 6))
    scores[:, 3:] = -torch.inf
    scores.requires_grad_()
    loss = entmax_loss(scores, torch.tensor([1, 4]), 1.5, reduction="none")
    assert loss[0].isfinite()
    assert loss[1] == torch.inf
    loss[0].backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    scores = randn((30, 400), dtype=dtype)
    target = torch.arange(30)
    half, double = scores.clone().requires_grad_(), scores.double().requires_grad_()
    loss = entmax_loss(half, target)
    assert loss.dtype == dtype
    expected = entmax_loss(double, target)
    assert_near(loss.detach(), expected.detach(), scale=5)
    loss.backward()
    expected.backward()
    assert_near(half.grad, double.grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = entmax_loss(scores, target)
    assert mixed.dtype == torch.float32
    assert_near(mixed, expected.detach(), scale=10)


def test_forward_makes_nothing_of_the_size_of_the_scores():
    scores = randn((64, 32_000)).requires_grad_()
    target = torch.arange(64)
    with torch.profiler.profile(profile_memory=True) as profile:
        entmax_loss(scores, target)
    largest = max(event.self_cpu_memory_usage for event in profile.key_averages())
    assert largest < scores.numel() * 4 / 100


def test_compiles_without_a_break():
    scores = randn((4, 9)).requires_grad_()
    alpha = torch.tensor(1.4, requires_grad=True)
    target = torch.tensor([1, -100, 3, 8])

    def run(s, a):
        return entmax_loss(s, target, a, label_smoothing=0.1)

    compiled = torch.autograd.grad(
        torch.compile(run, fullgraph=True, backend="aot_eager")(scores, alpha), (scores, alpha)
    )
    eager = torch.autograd.grad(run(scores, alpha), (scores, alpha))
    for actual, expected in zip(compiled, eager, strict=True):
        assert_near(actual, expected)


def test_registered_operators_pass_opcheck():
    scores, alpha = randn((3, 5)).requires_grad_(), torch.tensor(1.5, requires_grad=True)
    index = torch.tensor([0, 1, 4])
    options = (index, None, None, -100, 0.1, 1.0, "auto")
    torch.library.opcheck(torch.ops.adasparse.entmax_loss.default, (scores, alpha, *options))
    problem = (scores.detach(), alpha.detach(), *options)
    loss, saved = torch.ops.adasparse.entmax_loss(*problem)
    torch.library.opcheck(
        torch.ops.adasparse.entmax_loss_backward.default,
        (torch.ones_like(loss), saved, True, *problem),
    )


def test_vmap_and_grad():
    scores = randn((4, 3, 6), dtype=torch.float64)
    target = torch.tensor([[0, 1, 2]] * 4)
    expected = torch.stack([entmax_loss(s, t, 1.4) for s, t in zip(scores, target, strict=True)])
    actual = torch.func.vmap(lambda s, t: entmax_loss(s, t, 1.4))(scores, target)
    assert_near(actual, expected)
    alphas = torch.tensor([1.1, 1.5, 1.9, 2.0], dtype=torch.float64)
    per_sample = torch.func.vmap(
        torch.func.grad(lambda s, a: entmax_loss(s, target[0], a), argnums=1), in_dims=(0, 0)
    )(scores, alphas)
    for i in range(4):
        alpha = alphas[i].clone().requires_grad_()
        entmax_loss(scores[i], target[0], alpha).backward()
        assert_near(per_sample[i], alpha.grad)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((torch.zeros(2, 3), torch.tensor([0, 3])), {}, IndexError, "from 0 to 2.*got 3"),
        ((torch.zeros(2, 3), torch.tensor([0])), {}, ValueError, r"shape \(2,\).*got \(1,\)"),
        ((torch.zeros(2, 3), torch.zeros(2, 4)), {}, ValueError, r"\(2, 3\); got \(2, 4\)"),
        ((torch.zeros(2, 3), torch.tensor([True, False])), {}, TypeError, r"got torch\.bool"),
        ((torch.zeros(2, 3), torch.tensor([0, 1]), 0.5), {}, ValueError, r"got 0\.5"),
        ((torch.zeros(2, 0), torch.tensor([0, 1])), {}, ValueError, r"one class; got .*\(2, 0\)"),
        ((torch.zeros(2, 3), torch.tensor([0, 1])), {"reduction": "avg"}, ValueError, "got 'avg'"),
        (
            (torch.zeros(2, 3), torch.tensor([0, 1])),
            {"label_smoothing": 1.5},
            ValueError,
            r"got 1\.5",
        ),
        (
            (torch.zeros(2, 3), torch.tensor([0, 1])),
            {"weight": torch.ones(4)},
            ValueError,
            r"\(3,\); got \(4,\)",
        ),
    ],
)
def test_bad_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        entmax_loss(*arguments, **options)
