"""Sinks and soft-capped scores of attention."""

import math

import pytest
import torch

from adasparse import (
    entmax,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_weights,
)
from adasparse.kernels import reference
from support.attention_case import check, problem_of, tensors
from support.helpers import BACKENDS, randn

ALPHAS = [1.0, 1 + 1e-6, 1.05, 1.5, 2.0, 3.0]
#: Every route of the compiled kernels: rows in lanes, whole rows, candidates, and their edges.
SIZES = [(1, 1), (5, 64), (29, 63), (7, 128), (3, 129), (50, 300), (1, 700)]


def dense_of(crow, col, value, k):
    matrix = torch.zeros(len(crow) - 1, k, dtype=value.dtype)
    matrix[torch.arange(len(crow) - 1).repeat_interleave(crow.diff()), col] = value
    return matrix


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sinks_agree_with_the_reference(sizes, alpha):
    q, k = sizes
    x = tensors(b=2, h=4, q=q, k=k, d=16, g=2)
    sinks = torch.tensor([0.5, -1.0, 3.0, -math.inf])
    alphas = torch.full((4,), alpha)
    check(*x, alpha=alphas, sinks=sinks, enable_gqa=True, backends=BACKENDS)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sizes", [(1, 1), (29, 63), (7, 129), (40, 290)], ids=str)
def test_softcap_agrees_with_the_reference(sizes, alpha):
    q, k = sizes
    x = tensors(b=2, h=4, q=q, k=k, d=24, g=2)
    options = {"scale": 1.0, "softcap": 4.0, "enable_gqa": True}
    check(*x, alpha=torch.full((4,), alpha), backends=BACKENDS, **options)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("n", [31, 130, 270])
def test_both_agree_with_the_reference_among_all_other_options(n, alpha):
    x = tensors(b=2, h=2, q=n, k=n, d=13)
    options = {
        "alpha": torch.tensor([alpha, 1.3], dtype=torch.float32),
        "attn_mask": randn((1, 1, n, n), seed=5),
        "key_lengths": torch.tensor([n, n // 2]),
        "alibi_slopes": torch.tensor([0.1, 0.0]),
        "window": (n // 2, 3),
        "dropout_p": 0.2,
        "softcap": 2.0,
        "sinks": torch.tensor([0.3, 1.1]),
    }
    check(*x, backends=BACKENDS, **options)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 2.5])
def test_dense_heads_of_long_rows_recompute_their_weights(alpha):
    x = tensors(b=1, h=2, q=300, k=300, d=16)
    options = {"softcap": 3.0, "sinks": torch.tensor([0.3, 1.1]), "scale": 0.05}
    check(*x, alpha=torch.tensor([alpha, 1.0]), is_causal=True, backends=BACKENDS, **options)


def test_a_sink_is_one_more_key_of_value_zero():
    query, key, value = tensors(b=1, h=2, q=9, k=14, d=8, dtype=torch.float64)
    sinks = torch.tensor([0.7, -0.2], dtype=torch.float64)
    scores = query @ key.mT / math.sqrt(8)
    scores = torch.cat((scores, sinks.reshape(1, 2, 1, 1).expand(1, 2, 9, 1)), -1)
    weights = entmax(scores, 1.4)
    found = entmax_attention(query, key, value, alpha=1.4, sinks=sinks)
    torch.testing.assert_close(found, weights[..., :-1] @ value)
    dense = entmax_attention_weights(query, key, alpha=1.4, sinks=sinks)
    torch.testing.assert_close(dense, weights[..., :-1])
    crow, col, value = entmax_attention_support(query, key, alpha=1.4, sinks=sinks)
    sparse = dense_of(crow, col, value, 14)
    torch.testing.assert_close(sparse, dense.reshape(18, 14))


@pytest.mark.parametrize("backend", BACKENDS)
def test_softcap_of_weights_and_support(backend):
    query, key, _ = tensors(b=1, h=2, q=9, k=300, d=8)
    options = {"alpha": 1.5, "scale": 2.0, "softcap": 1.5, "backend": backend}
    capped = 1.5 * (query @ key.mT * 2 / 1.5).tanh()
    dense = entmax_attention_weights(query, key, **options)
    torch.testing.assert_close(dense, entmax(capped, 1.5))
    crow, col, value = entmax_attention_support(query, key, **options)
    sparse = dense_of(crow, col, value, 300)
    torch.testing.assert_close(sparse, dense.reshape(18, 300))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", [5, 200])
def test_a_query_that_sees_no_key_gives_all_to_the_sink(k, backend):
    x = [t.requires_grad_() for t in tensors(b=1, h=2, q=4, k=k, d=8)]
    sinks = torch.zeros(2, requires_grad=True)
    mask = torch.ones(4, k, dtype=torch.bool)
    mask[2] = False
    output = entmax_attention(*x, attn_mask=mask, sinks=sinks, backend=backend)
    assert not output[:, :, 2].any()
    gradient = torch.autograd.grad(output[:, :, 2].sum(), sinks)[0]
    assert not gradient.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sink_far_above_all_scores_takes_everything(backend):
    x = tensors(b=1, h=2, q=4, k=200, d=8)
    output = entmax_attention(*x, sinks=torch.tensor([100.0, -100.0]), backend=backend)
    assert not output[:, 0].any()
    torch.testing.assert_close(output[:, 1], entmax_attention(*x, backend=backend)[:, 1])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("k", [5, 200])
def test_a_bad_sink_spoils_its_head_alone(k, bad, backend):
    x = tensors(b=1, h=2, q=4, k=k, d=8)
    output = entmax_attention(*x, sinks=torch.tensor([bad, 0.0]), backend=backend)
    assert output[:, 0].isnan().all()
    assert output[:, 1].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_of_masked_keys_never_matter_under_a_softcap(backend):
    query, key, value = tensors(b=1, h=2, q=6, k=90, d=8)
    key[:, :, 80:] = math.nan
    value[:, :, 80:] = math.nan
    x = [t.requires_grad_() for t in (query, key, value)]
    options = {"alpha": 1.0, "softcap": 2.0, "key_lengths": torch.tensor([80])}
    output = entmax_attention(*x, backend=backend, **options)
    assert output.isfinite().all()
    for gradient in torch.autograd.grad(output.sum(), x):
        assert gradient.isfinite().all()


def test_higher_derivatives():
    x = [t.requires_grad_() for t in tensors(b=1, h=2, q=3, k=5, d=4, dtype=torch.float64)]
    sinks = torch.tensor([0.2, -0.4], dtype=torch.float64, requires_grad=True)

    def run(query, key, value, sinks):
        return entmax_attention(query, key, value, alpha=1.3, sinks=sinks, softcap=2.0)

    assert torch.autograd.gradcheck(run, (*x, sinks))
    assert torch.autograd.gradgradcheck(run, (*x, sinks))


def test_forward_mode_and_vmap():
    x = tensors(b=1, h=2, q=3, k=5, d=4, dtype=torch.float64)
    sinks = torch.tensor([0.2, -0.4], dtype=torch.float64)

    def run(sinks):
        return entmax_attention(*x, alpha=1.3, sinks=sinks, softcap=2.0)

    direction = torch.tensor([1.0, 2.0], dtype=torch.float64)
    _, tangent = torch.func.jvp(run, (sinks,), (direction,))
    step = 1e-6 * direction
    torch.testing.assert_close(tangent, (run(sinks + step) - run(sinks - step)) / 2e-6)
    many = torch.stack((sinks, sinks + 1))
    torch.testing.assert_close(torch.vmap(run)(many), torch.stack([run(s) for s in many]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype):
    x = tensors(b=1, h=2, q=40, k=150, d=16, dtype=dtype)
    sinks = torch.tensor([0.5, -1.0])
    options = {"softcap": 3.0, "sinks": sinks}
    problem = problem_of(*(t.double() for t in x), **options)
    wanted, _ = reference.attention_forward(problem, keep=False)
    found = entmax_attention(*x, **options)
    assert found.dtype == dtype
    assert (found.double() - wanted).abs().max() < torch.finfo(dtype).eps * wanted.abs().max()


def test_results_do_not_depend_on_threads(set_threads):
    x = tensors(b=2, h=4, q=100, k=300, d=16)
    options = {"alpha": 1.4, "sinks": torch.tensor([0.5, -1.0, 3.0, 0.0]), "softcap": 5.0}
    outputs = []
    for count in (1, 2, 5):
        set_threads(count)
        outputs.append(entmax_attention(*x, **options))
    assert all(torch.equal(x, outputs[0]) for x in outputs)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"softcap": 0.0}, ValueError, r"above 0, or None; got 0\.0"),
        ({"softcap": math.inf}, ValueError, "finite and above 0, or None; got inf"),
        ({"softcap": "50"}, TypeError, "softcap must be a number; got str"),
        ({"sinks": torch.zeros(2)}, ValueError, r"sinks must have the shape \(3,\).*got \(2,\)"),
        ({"sinks": torch.zeros(3).int()}, TypeError, "sinks must be a floating.*got torch.int32"),
        ({"sinks": [0.0, 0.0, 0.0]}, TypeError, "sinks must be a floating.*got list"),
    ],
    ids=str,
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        entmax_attention(*tensors(), **options)
