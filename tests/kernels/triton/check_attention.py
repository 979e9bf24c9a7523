"""Attention by the Triton kernels: every argument, forward and backward."""

from dataclasses import replace

import pytest
import torch

from adasparse import entmax
from adasparse.kernels import reference
from adasparse.kernels.triton import attention_forward
from support.triton_problems import ALPHAS, assert_agrees, computed, expected, make, on_device

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

LENGTHS = [1, 17, 65, 129]


@pytest.mark.parametrize(("q", "k"), [(1, 1), (17, 65), (129, 129)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths(q, k, is_causal):
    alphas = {1: [1.0, 1.3], 17: ALPHAS, 129: [1.3]}[q]
    assert_agrees(*make(h=len(alphas), alpha=alphas, q=q, k=k, is_causal=is_causal))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_float_alpha_with_a_map_of_its_own(alpha):
    assert_agrees(*make(h=1, q=17, k=129, alpha=alpha, is_causal=True))


@pytest.mark.parametrize(("d", "e"), [(64, 16), (80, 3), (3, 80)])
def test_head_sizes(d, e):
    assert_agrees(*make(h=2, alpha=[1.3, 2.0], q=17, k=65, d=d, e=e))


def test_shared_key_heads_and_lengths_with_nan_in_the_padding():
    lengths = torch.tensor([0, 66])
    problem, grad = make(b=2, h=2, g=1, alpha=[1.0, 1.3], q=17, k=70, key_lengths=lengths)
    wanted = assert_agrees(problem, grad)
    problem.key[1, :, 66:] = float("nan")
    problem.value[1, :, 66:] = float("nan")
    found = computed(problem, grad)
    assert found["output"][0].abs().max() == 0
    for name, x in wanted.items():
        assert torch.equal(found[name], x), name


@pytest.mark.parametrize(
    ("shape", "is_bool"), [((2, 1, 17, 70), False), ((1, 2, 1, 70), True)], ids=str
)
def test_masks_that_broadcast(shape, is_bool):
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(shape, generator=generator) > 0.4
    if shape[2] > 1:
        mask[..., 3:5, :] = False
    if not is_bool:
        mask = torch.where(mask, torch.randn(shape, generator=generator), -torch.inf)
    found = assert_agrees(*make(b=2, alpha=[1.0, 1.3], q=17, k=70, mask=mask, is_causal=True))
    if shape[2] > 1:
        assert found["output"][:, :, 3:5].abs().max() == 0


def test_slopes():
    slopes = torch.tensor([0.5, 0.02], dtype=torch.float64)
    assert_agrees(*make(alpha=[1.001, 2.0], q=40, k=129, slopes=slopes))


def test_alpha_per_query():
    generator = torch.Generator().manual_seed(0)
    alpha = 1 + torch.rand(2, 2, 17, 1, dtype=torch.float64, generator=generator)
    alpha[0, 0, ::3] = 1.0
    # Between 1.5 and 2 the gradient is steep at the edge of the support.
    assert_agrees(*make(b=2, h=2, alpha=alpha, q=17, k=70), tolerance=2e-5)


def test_alpha_above_two():
    # Weights and gradients are steep at the edge of the support: float32 says little about them.
    problem, _ = make(h=2, alpha=[2.5, 3.0], q=17, k=65)
    output, _ = attention_forward(on_device(problem), keep=False)
    wanted, _ = reference.attention_forward(problem, keep=False)
    assert (output.cpu().double() - wanted).abs().max() <= 1e-3 * wanted.abs().max()


@pytest.mark.parametrize(
    ("dtype", "alpha", "seed"),
    [
        (torch.bfloat16, 3.0, 0),
        *(
            pytest.param(*case, seed, marks=pytest.mark.slow)
            for case in ((torch.bfloat16, 3.0), (torch.float16, 3.0), (torch.float16, 2.01))
            for seed in (1, 2, 3)
        ),
    ],
    ids=str,
)
def test_gradients_above_two_in_half_precision(dtype, alpha, seed):
    # Sigma is large where a weight is small: with a mean gradient from values rounded to half
    # precision, errors were up to eight times those of PyTorch, and dalpha wrong in all digits.
    problem, grad = make(h=1, alpha=[alpha], q=64, k=64, dtype=dtype, seed=seed)
    found, exact = assert_errs_at_most_twice_as_much_as_pytorch(problem, grad)
    assert (found["alpha"] - exact["alpha"]).abs().max() <= 2e-3 * exact["alpha"].abs().max()


def test_small_weights_above_two_leave_no_nan_in_float16():
    problem, grad = make(h=1, alpha=[6.0], q=64, k=64, dtype=torch.float16)
    found = computed(problem, grad)  # sigma = p^-4 is beyond float16
    assert all(x.isfinite().all() for x in found.values())


@pytest.mark.slow
def test_mean_gradient_above_two_has_every_option():
    problem, grad = make(
        h=2, alpha=[1.5, 2.5], q=17, k=65, dropout_p=0.2, is_causal=True,
        sinks=torch.tensor([0.5, 1.0], dtype=torch.float64), softcap=20.0,
    )  # fmt: skip
    assert_agrees(replace(problem, seed=torch.tensor(5)), grad, tolerance=1e-3)


def test_dropout_has_the_bits_of_the_other_backends():
    problem, grad = make(b=2, h=3, alpha=[1.0, 1.5, 1.3], q=17, k=70, dropout_p=0.3)
    assert_agrees(replace(problem, seed=torch.tensor(2**40 + 12345)), grad)


def test_negative_scale_and_strides():
    problem, grad = make(h=2, alpha=[1.5, 1.1], q=33, k=40, scale=-0.3)
    turned = replace(
        problem,
        query=problem.query.transpose(1, 2).contiguous().transpose(1, 2),
        key=problem.key.mT.contiguous().mT,
    )
    wanted = assert_agrees(problem, grad)
    found = computed(turned, grad)
    for name, x in wanted.items():
        assert torch.equal(found[name], x), name


def test_scale_near_zero():
    # Masked keys had weight: their score times this scale was -1.
    problem, _ = make(h=1, alpha=[1.0], q=3, k=33, scale=1e-30)
    output, _ = attention_forward(on_device(problem), keep=False)
    wanted, _ = reference.attention_forward(problem, keep=False)
    assert (output.cpu() - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_windows():
    assert_windows_agree((70, 3))


@pytest.mark.slow
@pytest.mark.parametrize("window", [(5, 0), (None, 2), (0, None), (64, 64)], ids=str)
def test_more_windows(window):
    assert_windows_agree(window)


def assert_windows_agree(window):
    problem, grad = make(h=1, alpha=1.0 if window[0] == 5 else 1.3, q=129, k=129)
    i, j = torch.arange(129).unsqueeze(-1), torch.arange(129)
    left, right = (129 if n is None else n for n in window)
    mask = ((j >= i - left) & (j <= i + right))[None, None]
    wanted = computed(replace(problem, mask=mask), grad)
    found = computed(replace(problem, window_left=window[0], window_right=window[1]), grad)
    for name, x in wanted.items():
        assert (found[name] - x).abs().max() <= 2e-6 * x.abs().max(), name


def test_nan_and_infinity_stay_in_their_row():
    problem, _ = make(h=1, q=17, k=70)
    problem.query[0, 0, 7] = float("nan")
    mask = torch.zeros(1, 1, 17, 70)
    mask[..., 9, 4] = torch.inf
    for alpha in (1.0, 1.3, 1.5):
        changed = replace(problem, alpha=torch.full((1, 1, 1, 1), alpha).double(), mask=mask)
        output, _ = attention_forward(on_device(changed), keep=False)
        is_nan = output.isnan()
        assert is_nan[0, 0, [7, 9]].all() and is_nan.any(-1).sum() == 2


@pytest.mark.parametrize(
    ("dtype", "alpha"),
    [(torch.bfloat16, 1.3), (torch.bfloat16, 1.5), (torch.float16, 1.0), (torch.float16, 1.5)],
    ids=str,
)
def test_half_precision_errs_at_most_twice_as_much_as_pytorch(dtype, alpha):
    problem, grad = make(h=1, alpha=alpha, q=33, k=129, d=64, dtype=dtype)
    assert_errs_at_most_twice_as_much_as_pytorch(problem, grad)


def assert_errs_at_most_twice_as_much_as_pytorch(problem, grad):
    """Compare with plain PyTorch in the dtype of the problem; return our and exact results."""
    found, exact = computed(problem, grad), expected(problem, grad)
    fields = ("query", "key", "value")
    leaves = {name: getattr(problem, name).clone().requires_grad_() for name in fields}
    scores = leaves["query"] @ leaves["key"].mT * problem.scale
    output = entmax(scores, alpha=problem.alpha, backend="torch") @ leaves["value"]
    output.backward(grad)
    plain = {"output": output.detach(), **{name: x.grad for name, x in leaves.items()}}
    for name, given in plain.items():
        error = (found[name].double() - exact[name]).abs().max()
        assert error <= 2 * (given.double() - exact[name]).abs().max(), name
    return found, exact


@pytest.mark.slow  # the interpreter has one order of everything
def test_two_runs_are_equal():
    problem, grad = make(h=2, g=1, alpha=[1.3, 1.5], q=17, k=70)
    first, second = (computed(problem, grad) for _ in range(2))
    for name, x in first.items():
        assert torch.equal(second[name], x), name


@pytest.mark.parametrize("k", [40, 600])
def test_alpha_below_one_in_a_tensor_gives_nan_in_its_head(k):
    # Its values cannot be looked at; attention with gradients returned wrong numbers.
    problem, _ = make(h=2, alpha=[0.9, 1.5], q=3, k=k)
    for keep in (False, True):
        output, _ = attention_forward(on_device(problem), keep=keep)
        assert output[:, 0].isnan().all() and output[:, 1].isfinite().all()


def test_gradient_of_a_float32_mask_beside_half_precision_keeps_its_digits():
    mask = torch.randn(1, 1, 17, 40, generator=torch.Generator().manual_seed(0))
    problem, grad = make(h=1, q=17, k=40, mask=mask, dtype=torch.bfloat16)
    found = computed(problem, grad)["mask"]
    assert found.dtype == torch.float32 and not torch.equal(found, found.bfloat16().float())


def test_no_keys():
    problem, _ = make(h=1, q=3, k=0)
    output, _ = attention_forward(on_device(problem), keep=True)
    assert output.shape == (1, 1, 3, 16) and (output == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("q", LENGTHS)
@pytest.mark.parametrize("k", LENGTHS)
def test_every_length_and_head_size(q, k, is_causal):
    # A Latin square: each number of queries, and of keys, meets each head size.
    place = LENGTHS.index(q) + LENGTHS.index(k) + is_causal
    d = [3, 16, 64, 80][place % 4]
    lengths = torch.tensor([k, max(1, k - 5)])
    assert_agrees(
        *make(b=2, h=6, g=3, alpha=[*ALPHAS, 1.75], q=q, k=k, d=d, is_causal=is_causal,
              key_lengths=lengths),
        tolerance=2e-5,
        is_steep=True,
        # Where a query sees one key only, products of about 30 cancel to a gradient of 0, and the
        # roundings of all queries add up for the key.
        floor=3e-6 + (3e-7 * q + 1e-5) * (k == 1 or (q == 1 and is_causal)),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("d", [128, 256])
def test_large_heads(d):
    assert_agrees(*make(h=2, alpha=[1.3, 1.5], q=65, k=129, d=d))


@pytest.mark.slow
def test_all_options_at_once():
    generator = torch.Generator().manual_seed(3)
    mask = torch.where(
        torch.rand(2, 1, 65, 129, generator=generator) > 0.2,
        torch.randn(2, 1, 65, 129, generator=generator),
        -torch.inf,
    )
    problem, grad = make(
        b=2, h=4, g=2, alpha=[1.0, 1.2, 1.5, 2.0], q=65, k=129, d=80, e=16, mask=mask,
        is_causal=True, key_lengths=torch.tensor([129, 70]), dropout_p=0.2,
        slopes=torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64),
    )  # fmt: skip
    assert_agrees(replace(problem, seed=torch.tensor(77)), grad)
