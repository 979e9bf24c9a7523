"""Numbers that went wrong, or should be refused: masks, values, scales, weights, supports."""

import math

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from adasparse.functional import (
    entmax,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_weights,
    entmax_loss,
)
from support.helpers import assert_near, oracle

BACKENDS = ("cpu", "torch")


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


# -- masks


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(5, 5), (3, 6), (6, 3)])
def test_causal_biases_of_pytorch(sizes, heads, backend):
    """They are tensors whose memory holds nothing."""
    q, k = sizes
    query, key, value = randn(2, heads, q, 4), randn(2, heads, k, 4), randn(2, heads, k, 3)
    masks = {causal_upper_left: torch.ones(q, k, dtype=torch.bool).tril()}
    if q <= k:
        masks[causal_lower_right] = torch.ones(q, k, dtype=torch.bool).tril(k - q)
    for make, mask in masks.items():
        got = entmax_attention(query, key, value, attn_mask=make(q, k), backend=backend)
        expected = entmax_attention(query, key, value, attn_mask=mask, backend=backend)
        torch.testing.assert_close(got, expected)
        dense = entmax_attention(
            query, key, value, attn_mask=make(q, k), alpha=1.0, backend=backend
        )
        softmax = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=make(q, k)
        )
        torch.testing.assert_close(dense, softmax)


def test_the_mask_may_be_positional():
    x, mask = randn(1, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool).tril()
    expected = entmax_attention(x, x, x, attn_mask=mask)
    torch.testing.assert_close(entmax_attention(x, x, x, mask), expected)


def test_causal_bias_of_another_size_is_refused():
    x = randn(1, 2, 5, 4)
    with pytest.raises(ValueError, match="for 5 queries and 5 keys; got one for 4 and 5"):
        entmax_attention(x, x, x, attn_mask=causal_upper_left(4, 5))


class Plain(torch.Tensor):
    pass


class Meaningful(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def test_masks_of_other_tensor_subclasses():
    x, mask = randn(1, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool).tril()
    expected = entmax_attention(x, x, x, attn_mask=mask)
    got = entmax_attention(x, x, x, attn_mask=mask.as_subclass(Plain))
    torch.testing.assert_close(got.as_subclass(torch.Tensor), expected)
    with pytest.raises(TypeError, match=r"causal bias of .*; got Meaningful"):
        entmax_attention(x, x, x, attn_mask=mask.as_subclass(Meaningful))


# -- values of weight zero


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_values_of_weight_zero_never_matter(dropout_p, bad, backend):
    torch.manual_seed(0)
    query, key, value = randn(1, 1, 4, 3), randn(1, 1, 6, 3), randn(1, 1, 6, 2)
    key[..., 2, :] = 0
    mask = torch.zeros(4, 6, dtype=torch.float64)
    mask[:, 2] = -100

    def run(x):
        inputs = [t.clone().requires_grad_() for t in (query, key, x)]
        torch.manual_seed(1)
        out = entmax_attention(*inputs, attn_mask=mask, dropout_p=dropout_p, backend=backend)
        gradients = torch.autograd.grad(out.sum(), inputs)
        with torch.no_grad():
            torch.manual_seed(1)
            again = entmax_attention(*inputs, attn_mask=mask, dropout_p=dropout_p, backend=backend)
        return out.detach(), again, *gradients

    damaged = value.clone()
    damaged[..., 2, 0] = bad
    for got, expected in zip(run(damaged), run(value), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_of_some_weight_do_matter(backend):
    query, key = torch.ones(1, 1, 1, 1), torch.tensor([[[[1.0], [0.9], [-9.0]]]])
    value = torch.tensor([[[[1.0, math.inf, 2.0], [math.nan, 3.0, -math.inf], [math.nan] * 3]]])
    got = entmax_attention(query, key, value, backend=backend)[0, 0, 0]
    assert got.isnan().tolist() == [True, False, False]
    assert got[1:].tolist() == [math.inf, -math.inf]


# -- the support


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_the_support_has_no_weight_of_zero(dtype, backend):
    torch.manual_seed(2)
    for alpha in (1.0, 1.01, 1.3, 1.5, 1.9, 1.99, 1.999, 1.999999, 2.0, 2.000001, 2.3, 4.0):
        for scale in (0.0, 1e-30, 1e-6, 1.0, 60.0):
            for keys in (1, 7, 40, 300):
                query, key = randn(1, 2, 3, 4, dtype=dtype), randn(1, 2, keys, 4, dtype=dtype)
                if keys == 7:
                    key = key[:, :, :1].expand(-1, -1, keys, -1)
                options = {"alpha": alpha, "scale": scale, "backend": backend}
                support = entmax_attention_support(query, key, **options)
                assert (support.value > 0).all(), (alpha, scale, keys)
                weights = entmax_attention_weights(query, key, **options)
                rows = torch.zeros(6, keys, dtype=dtype)
                place = torch.arange(6).repeat_interleave(support.crow.diff())
                rows[place, support.col] = support.value
                torch.testing.assert_close(rows.view(weights.shape), weights, atol=1e-3, rtol=0)


# -- losses


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_in_float64_with_float32_class_weights(smoothing, backend):
    torch.manual_seed(3)
    scores, target = randn(50, 7), torch.randint(0, 7, (50,))
    weight = torch.rand(7)
    options = {"label_smoothing": smoothing, "backend": backend}
    got = entmax_loss(scores, target, 1.0, weight=weight, **options)
    expected = torch.nn.functional.cross_entropy(
        scores, target, weight.double(), label_smoothing=smoothing
    )
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    same = entmax_loss(scores, target, 1.5, weight=weight.double(), **options)
    wide = entmax_loss(scores, target, 1.5, weight=weight, **options)
    torch.testing.assert_close(wide, same, rtol=1e-12, atol=1e-12)


def test_wrong_types_of_losses_are_named():
    scores, target = torch.randn(2, 3), torch.tensor([0, 1])
    with pytest.raises(TypeError, match="scores must be a tensor; got list"):
        entmax_loss([[1.0, 2.0]], target)
    with pytest.raises(TypeError, match=r"target must be a tensor of classes.*; got list"):
        entmax_loss(scores, [0, 1])
    with pytest.raises(TypeError, match=r"weight must be a tensor \(3,\) or None; got list"):
        entmax_loss(scores, target, weight=[1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="alpha must be a number or a tensor; got list"):
        entmax_loss(scores, target, [1.5])
    with pytest.raises(TypeError, match="label_smoothing must be a number; got str"):
        entmax_loss(scores, target, label_smoothing="0.1")
    with pytest.raises(TypeError, match="ignore_index must be an integer; got float"):
        entmax_loss(scores, target, ignore_index=0.5)


# -- scale and alpha


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_scales_that_are_not_finite_are_refused(scale):
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"scale must be finite; got {scale}"):
        entmax_attention(x, x, x, scale=scale)
    with pytest.raises(ValueError, match=f"scale must be finite; got {scale}"):
        entmax_attention_weights(x, x, scale=scale)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_infinite_alpha_is_refused(backend):
    """A tensor of it gave NaN."""
    x, scores = torch.randn(1, 2, 3, 4), torch.randn(3, 4)
    message = "alpha must be at least 1 and finite; got inf"
    for alpha in (math.inf, torch.tensor(math.inf), torch.tensor([1.5, math.inf])):
        with pytest.raises(ValueError, match=message):
            entmax_attention(x, x, x, alpha=alpha, backend=backend)
    for alpha in (math.inf, torch.tensor(math.inf), torch.tensor([[1.5], [math.inf], [1.0]])):
        with pytest.raises(ValueError, match=message):
            entmax(scores, alpha, backend=backend)
        with pytest.raises(ValueError, match=message):
            entmax_loss(scores, torch.tensor([0, 1, 2]), alpha, backend=backend)
    with pytest.raises(ValueError, match="alpha must be at least 1 and finite; got nan"):
        entmax(scores, torch.tensor(math.nan), backend=backend)


@pytest.mark.parametrize("context", [torch.inference_mode, FakeTensorMode])
def test_an_alpha_first_seen_elsewhere_takes_gradients(context):
    """A number becomes a tensor once; that of another mode must not be found again."""
    alpha = 1.375 if context is FakeTensorMode else 1.3125
    with context():
        scores = torch.randn(2, 5)
        entmax(scores, alpha)
        entmax_attention(scores, scores, scores, alpha=alpha)
    scores = torch.randn(2, 5).requires_grad_()
    entmax(scores, alpha).pow(2).sum().backward()
    entmax_attention(scores, scores, scores, alpha=alpha).sum().backward()
    assert scores.grad.isfinite().all()


def test_an_alpha_first_seen_in_a_transform_is_a_number():
    scores = torch.randn(3, 5)
    torch.func.vmap(lambda x: entmax(x, 1.4375))(scores)
    torch.func.grad(lambda x: entmax(x, 1.4375).pow(2).sum())(scores)
    weights = entmax(scores, 1.4375)
    assert_near(weights, oracle(scores, 1.4375))


def conjugate_part(x):
    """``x`` as the imaginary part of a conjugate: its memory holds the opposite sign."""
    return torch.complex(torch.zeros_like(x), -x).conj().imag


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sign_that_memory_does_not_show_counts(dtype):
    """Kernels used to read ``-x``, in inputs and in incoming gradients."""
    query, key, value = (randn(1, 2, 5, 4, dtype=dtype) for _ in range(3))
    mask, alpha = randn(5, 5, dtype=dtype), torch.tensor([1.3, 1.7], dtype=torch.float64)
    target, grad = torch.tensor([1, 0, 3, 2, 1]), randn(1, 2, 5, 4, dtype=dtype)

    def results(view):
        q, k, v, a = (x.clone().requires_grad_() for x in (query, key, value, alpha))
        out = entmax_attention(view(q), view(k), view(v), alpha=view(a), attn_mask=view(mask))
        out.backward(view(grad))
        weights = entmax(view(v), view(a)[0])
        loss = entmax_loss(view(v)[0, 0], target, weight=view(grad[0, 0, 0]).abs())
        (weights.sum() * 0 + loss).backward()
        return [out, weights, loss, q.grad, k.grad, v.grad, a.grad]

    assert conjugate_part(query).is_neg()
    for got, expected in zip(results(conjugate_part), results(lambda x: x), strict=True):
        assert torch.equal(got, expected)
