"""Windows of nearby keys give what all keys give."""

import pytest
import torch

from adasparse import entmax_attention, entmax_attention_weights
from adasparse.functional import alibi_window
from adasparse.functional.attention_arguments import attention_problem
from adasparse.functional.attention_operators import attend
from adasparse.nn import alibi_slopes, nape_slopes
from support.helpers import randn

SLOPES = {
    "nape": nape_slopes(4),
    "alibi": 16 * alibi_slopes(4),
    "mixed": torch.tensor([0.0, 2.0, 0.0, 1.0]),
    "all": torch.tensor([1.0, 1.5, 0.7, 3.0]),
}
ALPHAS = {"fixed": 1.5, "softmax": 1.0, "learned": torch.tensor([1.2, 1.9, 1.5, 1.05])}


@pytest.fixture
def uses(monkeypatch):
    """Count how many heads get windows, call by call."""
    sizes, run = [], alibi_window._within

    def counting(problem, *arguments):
        sizes.append(problem.query.shape[1])
        return run(problem, *arguments)

    monkeypatch.setattr(alibi_window, "_within", counting)
    return sizes


def without_windows(query, key, value, **options):
    """The same attention with all keys scored."""
    return attend(attention_problem(query, key, value, **{"alpha": 1.5, **options})[0], "auto")


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES)
@pytest.mark.parametrize("alpha", ALPHAS.values(), ids=ALPHAS)
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_windows_change_nothing(alpha, slopes, groups, uses):
    n = 521
    query = randn((2, 4, n, 8)).requires_grad_()
    key = (1.5 * randn((2, groups, n, 8), seed=1)).requires_grad_()
    value = randn((2, groups, n, 8), seed=2).requires_grad_()
    inputs = [query, key, value]
    if isinstance(alpha, torch.Tensor):
        alpha = alpha.clone().requires_grad_()
        inputs.append(alpha)
    grad = randn((2, 4, n, 8), seed=3)
    options = {"alpha": alpha, "is_causal": True, "alibi_slopes": slopes, "enable_gqa": True}
    expected = without_windows(query, key, value, **options)
    assert not uses
    found = entmax_attention(query, key, value, **options)
    assert uses, "no head was near"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    for x, y in zip(
        torch.autograd.grad(found, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(x, y, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES)
def test_learned_slopes_get_the_same_gradients(slopes, uses):
    query, key, value = (randn((2, 4, 521, 8), seed=i) for i in range(3))
    grad = randn((2, 4, 521, 8), seed=3)
    slopes = slopes.clone().requires_grad_()
    alpha = torch.tensor(1.5, requires_grad=True)
    found, expected = (
        torch.autograd.grad(
            run(query, key, value, alpha=alpha, is_causal=True, alibi_slopes=slopes),
            (slopes, alpha),
            grad,
        )
        for run in (entmax_attention, without_windows)
    )
    assert uses
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, atol=1e-3, rtol=1e-4)


def test_negative_slopes_have_no_window(uses):
    # Such a head prefers the keys farthest away.
    x = randn((1, 3, 521, 8))
    slopes = torch.tensor([1.0, -1.0, 0.0])
    found = entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)
    assert uses == [1]
    expected = without_windows(x, x, x, is_causal=True, alibi_slopes=slopes)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 2.0])
def test_no_weight_is_beyond_its_window(alpha):
    query, key = 3 * randn((2, 2, 400, 4)), 3 * randn((2, 2, 400, 4), seed=1)
    options = {"alpha": alpha, "is_causal": True, "alibi_slopes": torch.tensor([1.0, 2.5])}
    weights = entmax_attention_weights(query, key, **options)
    place = torch.arange(400)
    distance = place[:, None] - place
    problem, _ = attention_problem(query, key, key, **options)
    for head, window in enumerate(alibi_window._windows(problem)):
        reached = distance[(weights[:, head] != 0).any(0)].max().item()
        assert reached <= window < 400 * (2 if alpha < 1.5 else 1)


def test_short_sequences_and_flat_slopes_score_all_keys(uses):
    for n, slopes in ((200, nape_slopes(4)), (521, torch.full((4,), 0.01))):
        x = randn((1, 4, n, 8))
        found = entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)
        assert torch.equal(found, without_windows(x, x, x, is_causal=True, alibi_slopes=slopes))
    assert not uses


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": False},
        {"attn_mask": torch.ones(521, 521, dtype=torch.bool)},
        {"key_lengths": torch.tensor([500])},
        {"dropout_p": 0.1},
        {"alpha": torch.full((1, 4, 521, 1), 1.5)},
    ],
    ids=lambda x: next(iter(x)),
)
def test_other_calls_score_all_keys(options, uses):
    x = randn((1, 4, 521, 8))
    options = {"is_causal": True, "alibi_slopes": SLOPES["all"], **options}
    torch.manual_seed(0)
    found = entmax_attention(x, x, x, **options)
    torch.manual_seed(0)
    assert torch.equal(found, without_windows(x, x, x, **options))
    assert not uses


def test_compiled_and_mapped_calls_score_all_keys(uses):
    x = randn((2, 1, 2, 300, 8))
    slopes = torch.tensor([4.0, 2.0])

    def run(x):
        return entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)

    expected = torch.stack(
        [without_windows(y, y, y, is_causal=True, alibi_slopes=slopes) for y in x]
    )
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x[0]), expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.func.vmap(run)(x), expected, atol=1e-5, rtol=0)
    assert not uses


@pytest.mark.parametrize("n", [256, 257, 319, 320, 321])
def test_sizes_around_blocks(n, uses):
    x = randn((1, 2, n, 8))
    slopes = torch.tensor([4.0, 2.0])
    found = entmax_attention(x, x, x, is_causal=True, scale=0.3, alibi_slopes=slopes)
    expected = without_windows(x, x, x, is_causal=True, scale=0.3, alibi_slopes=slopes)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert uses == [2]


def test_half_precision(uses):
    x = randn((1, 4, 521, 8)).bfloat16()
    slopes = SLOPES["all"]
    found = entmax_attention(x, x, x, is_causal=True, alibi_slopes=slopes)
    expected = without_windows(x, x, x, is_causal=True, alibi_slopes=slopes)
    assert found.dtype == torch.bfloat16 and uses
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=0)
