import functools

import pytest
import torch

from adasparse.kernels import AttentionProblem, LossProblem, cpu, reference
from adasparse.kernels import torch as torch_kernels
from adasparse.kernels.problem import with_tensors
from support.helpers import ALPHAS, assert_near, oracle, randn

pytestmark = [
    pytest.mark.skipif(not cpu.is_available(), reason="the compiled kernels are not installed"),
    pytest.mark.usefixtures("nan_filled_memory"),
]

SIZES = [1, 2, 7, 9, 16, 17, 63, 65, 129, 257, 1031]


def rows_of(kind, n):
    scores = randn((19, n), seed=n)
    if kind == "broad":
        return scores * 0.1
    if kind == "huge":
        return scores.clamp(-1, 1) * 1e4
    if kind == "equal":
        return torch.full((19, n), 3.3)
    if kind == "masked":
        scores[randn((19, n), seed=n + 1) > 0.3] = -torch.inf
        scores[4] = -torch.inf
    return scores


@functools.cache
def expected_rows(kind, n, alpha):
    return oracle(rows_of(kind, n), alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["normal", "broad", "huge", "equal", "masked"])
def test_every_instruction_set_agrees_with_the_reference(isa, kind, alpha):
    for n in SIZES:
        scores, expected = rows_of(kind, n), expected_rows(kind, n, alpha)
        weights = cpu.entmax_forward(scores, torch.tensor([alpha], dtype=torch.float64))
        assert_near(weights, expected)
        assert_near(weights.double().sum(-1).float(), expected.sum(-1))
        # Zeros are exact, but for a score on the threshold and what float32 cannot hold.
        wrong = (weights == 0) != (expected.float() == 0)
        assert torch.maximum(weights, expected.float())[wrong].sum() < 1e-6


@functools.cache
def expected_long_rows(scale, alpha):
    return oracle(randn((2, 32_000), seed=3) * scale, alpha)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 1.75, 2.0, 3.0])
def test_long_rows_agree_with_the_reference(isa, alpha):
    for scale in (0.01, 1.0, 30.0):
        scores = randn((2, 32_000), seed=3) * scale
        weights = cpu.entmax_forward(scores, torch.tensor([alpha], dtype=torch.float64))
        assert_near(weights, expected_long_rows(scale, alpha))
        assert_near(weights.double().sum(-1).float(), torch.ones(2))


@pytest.mark.parametrize("alpha", [0.3, 0.9, *ALPHAS, 4.0])
@pytest.mark.parametrize("n", [1, 5, 64, 65, 300])
def test_float64_is_exact_to_rounding(isa, n, alpha):
    scores = randn((9, n), dtype=torch.float64, seed=n)
    weights = cpu.entmax_forward(scores, torch.tensor([alpha], dtype=torch.float64))
    assert_near(weights, oracle(scores, alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [2, 13, 64, 65, 1000])
def test_backward_agrees_with_the_reference(isa, n, alpha):
    scores, grad = randn((23, n), seed=n), randn((23, n), seed=n + 1)
    wide = torch.tensor([alpha], dtype=torch.float64)
    weights = oracle(scores, alpha)
    expected, expected_alpha = reference.entmax_backward(
        weights, grad.double(), wide, with_alpha=True
    )
    actual, actual_alpha = cpu.entmax_backward(weights.float(), grad, wide, with_alpha=True)
    assert_near(actual, expected, scale=10 * max(1.0, expected.abs().max().item()))
    error = (actual_alpha - expected_alpha).norm() / expected_alpha.norm()
    assert error < 1e-5
    only, nothing = cpu.entmax_backward(weights.float(), grad, wide, with_alpha=False)
    assert nothing is None
    assert_near(only, expected, scale=10 * max(1.0, expected.abs().max().item()))


def test_alpha_may_differ_from_row_to_row(isa):
    for n in (5, 64, 200):
        scores = randn((40, n), seed=n)
        alpha = torch.tensor([1.0, 1.5, 1.5, 2.0, 1.2, 3.0, 1.9, 1.5] * 5, dtype=torch.float64)
        assert_near(cpu.entmax_forward(scores, alpha), oracle(scores, alpha))


def test_results_do_not_depend_on_the_number_of_threads(isa, monkeypatch):
    for n in (3, 24, 64, 100, 3000):
        scores, grad = randn((700, n), seed=n), randn((700, n), seed=n + 1)
        for alpha in (1.0, 1.3, 1.5, 2.0, 2.5):
            wide = torch.tensor([alpha], dtype=torch.float64)
            results = []
            for threads in (1, 2, 5):
                monkeypatch.setattr(torch, "get_num_threads", lambda t=threads: t)
                weights = cpu.entmax_forward(scores, wide)
                backward = cpu.entmax_backward(weights, grad, wide, with_alpha=True)
                results.append((weights, *backward))
            for other in results[1:]:
                assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_row_does_not_depend_on_its_neighbors(isa):
    scores = randn((21, 40))
    for alpha in (1.0, 1.3, 1.5, 1.8, 2.0):
        wide = torch.tensor([alpha], dtype=torch.float64)
        together = cpu.entmax_forward(scores, wide)
        alone = torch.cat([cpu.entmax_forward(row[None], wide) for row in scores])
        assert torch.equal(together, alone)


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("n", [6, 300])
def test_nan_and_infinity_spoil_their_row_alone(isa, n, alpha):
    scores = randn((12, n))
    clean = cpu.entmax_forward(scores, torch.tensor([alpha], dtype=torch.float64))
    scores[3, 2], scores[7, 5] = torch.nan, torch.inf
    weights = cpu.entmax_forward(scores, torch.tensor([alpha], dtype=torch.float64))
    spoiled = torch.zeros(12, dtype=torch.bool).index_fill(0, torch.tensor([3, 7]), True)
    assert weights[spoiled].isnan().all()
    assert torch.equal(weights[~spoiled], clean[~spoiled])


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_loss_agrees_with_pytorch_and_the_reference(isa, alpha, dtype):
    scores = (2 * randn((11, 37))).to(dtype)
    wide = torch.tensor([alpha], dtype=torch.float64)
    index = torch.arange(11) % 37
    index[4] = -1
    probability = randn((11, 37), seed=5).softmax(-1).to(dtype)
    weight = randn((37,), seed=6).abs().to(dtype)
    for target in (
        {"index": index, "ignore_index": -1},
        {"index": index, "ignore_index": -1, "label_smoothing": 0.2, "weight": weight},
        {"probability": probability},
        {"probability": probability, "label_smoothing": 0.3, "weight": weight},
    ):
        problem = LossProblem(scores=scores, alpha=wide, **target)
        exact = with_tensors(problem, {"scores": scores.double()})
        grad = randn((11,), dtype=torch.float64, seed=7)
        loss, saved = cpu.loss_forward(problem)
        actual = cpu.loss_backward(problem, saved, grad, with_alpha=True)
        for oracle_kernels in (torch_kernels, reference):
            expected, kept = oracle_kernels.loss_forward(exact)
            assert_near(loss.float(), expected, scale=20)
            wanted = oracle_kernels.loss_backward(exact, kept, grad, with_alpha=True)
            assert_near(actual[0], wanted[0], scale=5)
            assert_near(actual[1].float(), wanted[1], scale=20)


def test_an_unknown_instruction_set_is_refused():
    with pytest.raises(ValueError, match=r"one of .*baseline here; got 'sse9'"):
        cpu.use_isa("sse9")


def test_tensors_that_kernels_cannot_read_are_refused():
    alpha = torch.tensor([1.5], dtype=torch.float64)
    scores = randn((4, 6))
    with pytest.raises(ValueError, match=r"contiguous tensors.*with strides \(1"):
        cpu.entmax_forward(scores.t(), alpha)
    with pytest.raises(ValueError, match=r"tensors of torch.float64; got torch.float32"):
        cpu.entmax_forward(scores, alpha.float())
    with pytest.raises(ValueError, match=r"1 or 4 values; got 3"):
        cpu.entmax_forward(scores, alpha.expand(3).contiguous())
    with pytest.raises(TypeError, match=r"torch.bfloat16.*got torch.int64"):
        cpu.entmax_forward(scores.long(), alpha)
    with pytest.raises(ValueError, match=r"shape of the weights, \(4, 6\); got \(4, 5\)"):
        cpu.entmax_backward(scores, scores[:, :5].contiguous(), alpha, with_alpha=False)
    with pytest.raises(ValueError, match=r"either index or probability"):
        cpu.loss_forward(LossProblem(scores=scores, alpha=alpha))
    with pytest.raises(ValueError, match=r"index must be \(4,\); got \(3,\)"):
        cpu.loss_forward(LossProblem(scores=scores, alpha=alpha, index=torch.zeros(3).long()))
    x = randn((1, 2, 3, 4))
    options = {"query": x, "key": x, "value": x, "alpha": alpha.reshape(1, 1, 1, 1), "scale": 1.0}
    for changed, message in (
        ({"key": x[:, :, :, :3]}, r"must agree.*\(1, 2, 3, 3\)"),
        ({"key": x[:, :0], "value": x[:, :0]}, r"must divide h"),
        ({"value": x.transpose(2, 3)[:, :, :3]}, r"contiguous last dimension"),
        ({"alpha": alpha.reshape(1, 1, 1, 1).float()}, r"alpha must be float64"),
        ({"mask": x[..., :3].double()}, r"mask must be bool or torch.float32"),
    ):
        with pytest.raises(ValueError, match=message):
            cpu.attention_forward(AttentionProblem(**{**options, **changed}), keep=False)
    with pytest.raises(ValueError, match=r"key must have rank 4, torch.float16.*got torch.float32"):
        cpu.attention_forward(AttentionProblem(**{**options, "query": x.half()}), keep=False)
    integers = dict.fromkeys(("query", "key", "value"), x.long())
    with pytest.raises(TypeError, match=r"torch.bfloat16.*got torch.int64"):
        cpu.attention_forward(AttentionProblem(**{**options, **integers}), keep=False)


def test_a_call_without_the_extension_says_why(monkeypatch):
    monkeypatch.setattr(cpu.native, "extension", None)
    monkeypatch.setattr(cpu.native, "missing_reason", "the compiler is Elbrus 1.0")
    with pytest.raises(RuntimeError, match=r"not installed: the compiler is Elbrus"):
        cpu.entmax_forward(randn((2, 3)), torch.tensor([1.5], dtype=torch.float64))


def test_the_reason_of_an_installation_without_kernels_is_read(monkeypatch, tmp_path):
    note = tmp_path / "no_kernels.txt"
    note.write_text("the compiler is GNU 11.3.0\n")
    monkeypatch.setattr("importlib.metadata.files", lambda name: [tmp_path / "a.py", note])
    assert cpu.native._reason_of_installation() == "the compiler is GNU 11.3.0"
    monkeypatch.setattr("importlib.metadata.files", lambda name: None)
    assert cpu.native._reason_of_installation() == ""
