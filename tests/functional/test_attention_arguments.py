"""Shapes that are accepted, and the words for those that are not."""

import math

import pytest
import torch

from adasparse import entmax_attention
from adasparse.functional import backends
from adasparse.kernels import cpu
from support.attention_case import tensors
from support.helpers import BACKENDS, assert_near, randn

both = pytest.mark.parametrize("backend", BACKENDS)


@both
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (2, 1, 4, 3)], ids=str)
def test_any_number_of_leading_dimensions(lead, backend):
    query, key, value = (randn((*lead, n, d), seed=d) for n, d in ((5, 4), (6, 4), (6, 7)))
    output = entmax_attention(query, key, value, backend=backend)
    assert output.shape == (*lead, 5, 7)
    # One head at a time, in the simplest form
    for index in torch.ones(lead).nonzero().tolist():
        i = tuple(index)
        single = entmax_attention(query[i], key[i], value[i], backend=backend)
        assert_near(output[i], single)


@both
@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((2, 1, 3), (1, 5, 3), (3,)),
        ((3,), (4, 3), (4, 3)),
        ((2, 3), (3,), (1, 3)),
        ((4, 3), (4, 1), (4, 1)),
        ((4, 1), (4, 3), (4, 1)),
        ((4, 1), (4, 1), (1, 3)),
        ((), (3,), (2, 3)),
    ],
    ids=str,
)
def test_leading_dimensions_broadcast(query, key, value, backend):
    lead = torch.broadcast_shapes(query, key, value)
    x = [
        randn((*shape, *inner), dtype=torch.float64, seed=len(inner)).requires_grad_()
        for shape, inner in ((query, (5, 4)), (key, (6, 4)), (value, (6, 7)))
    ]
    output = entmax_attention(*x, backend=backend)
    wide = [t.detach().expand(*lead, *t.shape[-2:]).clone().requires_grad_() for t in x]
    wanted = entmax_attention(*wide, backend=backend)
    assert_near(output, wanted)
    grad = randn(output.shape, dtype=torch.float64)
    output.backward(grad)
    wanted.backward(grad)
    for narrow, full in zip(x, wide, strict=True):
        assert_near(narrow.grad, full.grad.sum_to_size(narrow.shape))


@both
@pytest.mark.parametrize(
    "shape",
    [(6,), (5, 6), (3, 1, 1), (4, 1, 5, 6), (1, 1, 3, 5, 6), (2, 1, 1, 1, 6), (2, 4, 3, 5, 6)],
)
def test_masks_and_alphas_over_several_batch_dimensions(shape, backend):
    query, key, value = (
        randn((2, 4, 3, n, 4), dtype=torch.float64, seed=n + i) for i, n in enumerate((5, 6, 6))
    )
    mask = randn(shape, dtype=torch.float64, seed=2).requires_grad_()
    alpha = (
        1 + randn((*shape[:-1], 1), dtype=torch.float64, seed=3).sigmoid()
        if len(shape) > 1
        else 1.5
    )
    output = entmax_attention(query, key, value, attn_mask=mask, alpha=alpha, backend=backend)
    grad = randn(output.shape, dtype=torch.float64, seed=4)
    output.backward(grad)
    full_mask = mask.detach().expand(2, 4, 3, 5, 6)
    full_alpha = torch.as_tensor(alpha, dtype=torch.float64).expand(2, 4, 3, 5, 1)
    by_mask = torch.zeros(2, 4, 3, 5, 6, dtype=torch.float64)
    for i in range(2):
        for j in range(4):
            single = full_mask[i, j].clone().requires_grad_()
            part = entmax_attention(
                query[i, j],
                key[i, j],
                value[i, j],
                attn_mask=single,
                alpha=full_alpha[i, j],
                backend=backend,
            )
            assert_near(output[i, j], part)
            part.backward(grad[i, j])
            by_mask[i, j] = single.grad
    assert_near(mask.grad, by_mask.sum_to_size(shape), scale=10)


@both
def test_key_lengths_over_several_batch_dimensions(backend):
    query, key, value = (randn((2, 4, 3, n, 4), seed=n + i) for i, n in enumerate((5, 6, 6)))
    lengths = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 3]])
    output = entmax_attention(query, key, value, key_lengths=lengths, backend=backend)
    mask = torch.arange(6) < lengths[..., None, None, None]
    assert_near(output, entmax_attention(query, key, value, attn_mask=mask, backend=backend))
    one = entmax_attention(
        query[0, 2], key[0, 2], value[0, 2], key_lengths=torch.tensor(2), backend=backend
    )
    assert_near(output[0, 2], one)


@both
@pytest.mark.parametrize("empty", ["b", "h", "q", "k", "d", "e", "qk", "ke"])
def test_empty_sizes(empty, backend):
    b, h, q, k, d, e = (0 if name in empty else n for n, name in enumerate("bhqkde", start=2))
    leaves = {
        "query": torch.randn(b, h, q, d),
        "key": torch.randn(b, h, k, d),
        "value": torch.randn(b, h, k, e),
        "alpha": torch.full((h,), 1.5),
        "attn_mask": torch.randn(q, k),
        "alibi_slopes": torch.full((h,), 0.1),
    }
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    for options in ({}, {"is_causal": True, "dropout_p": 0.5}):
        output = entmax_attention(**leaves, **options, backend=backend)
        assert output.shape == (b, h, q, e)
        assert output.isfinite().all()
        if empty not in ("d", "e"):
            assert (output == 0).all()
        output.sum().backward()
        assert all(x.grad.shape == x.shape and x.grad.isfinite().all() for x in leaves.values())


@both
def test_inputs_are_not_changed(backend):
    x = tensors(dtype=torch.float32)
    options = {"attn_mask": randn((7, 11)), "alibi_slopes": torch.ones(3)}
    before = [t.clone() for t in (*x, *options.values())]
    entmax_attention(*x, **options, dropout_p=0.5, backend=backend)
    for t, kept in zip((*x, *options.values()), before, strict=True):
        assert torch.equal(t, kept)


def zeros(*shapes, dtype=torch.float32):
    return tuple(torch.zeros(shape, dtype=dtype) for shape in shapes)


X = zeros((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6))


@pytest.mark.parametrize(
    ("x", "options", "error", "message"),
    [
        (([1.0], X[1], X[2]), {}, TypeError, "query must be a tensor; got list"),
        ((torch.zeros(3), X[1], X[2]), {}, ValueError, r"query must have .* got \(3,\)"),
        ((X[0], X[1].to_sparse(), X[2]), {}, TypeError, r"key must .* got torch\.sparse_coo"),
        ((X[0], X[1].to("meta"), X[2]), {}, ValueError, "key must .* query, cpu; got meta"),
        ((X[0], X[1].double(), X[2]), {}, TypeError, r"got torch\.float32, torch\.float64 and"),
        (zeros(*[(2, 3)] * 3, dtype=torch.int64), {}, TypeError, r"got torch\.int64, torch\.int64"),
        (zeros((4, 8), (5, 7), (5, 6)), {}, ValueError, "agree on d; got 8 and 7"),
        (zeros((4, 8), (5, 8), (6, 6)), {}, ValueError, "agree on k; got 5 and 6"),
        (
            zeros((2, 3, 4, 8), (4, 3, 5, 8), (2, 3, 5, 6)),
            {},
            ValueError,
            r"batch dimensions .* got \(2,\), \(4,\), \(2,\)",
        ),
        (
            zeros((6, 4, 8), (2, 5, 8), (2, 5, 6)),
            {},
            ValueError,
            "got 6, 2 and 2. With enable_gqa=True, heads",
        ),
        (
            zeros((5, 4, 8), (2, 5, 8), (2, 5, 6)),
            {"enable_gqa": True},
            ValueError,
            "got 5, 2 and 2. With enable_gqa=True, those",
        ),
        (
            zeros((8, 4, 8), (4, 5, 8), (2, 5, 6)),
            {"enable_gqa": True},
            ValueError,
            "got 8, 4 and 2",
        ),
        (X, {"alpha": 0.9}, ValueError, r"at least 1 and finite; got 0\.9"),
        (X, {"alpha": math.nan}, ValueError, "got nan"),
        (X, {"alpha": math.inf}, ValueError, "got inf"),
        (X, {"alpha": True}, TypeError, "got bool"),
        (X, {"alpha": "1.5"}, TypeError, "got str"),
        (X, {"alpha": torch.tensor(2)}, TypeError, r"got torch\.int64"),
        (X, {"alpha": torch.tensor(0.5)}, ValueError, r"at least 1 and finite; got 0\.5"),
        (
            X,
            {"alpha": torch.tensor([1.5, 0.25, 2.0])},
            ValueError,
            r"at least 1 and finite; got 0\.25",
        ),
        (
            X,
            {"alpha": torch.tensor([1.5, math.nan, 2.0])},
            ValueError,
            "at least 1 and finite; got nan",
        ),
        (X, {"alpha": torch.ones(4)}, ValueError, r"\(3,\), one per head.*got \(4,\)"),
        (X, {"alpha": torch.ones(4, 5)}, ValueError, r"to \(2, 3, 4, 1\); got \(4, 5\)"),
        (X, {"alpha": torch.ones(3, device="meta")}, ValueError, "alpha .* cpu; got meta"),
        (X, {"attn_mask": torch.ones(4, 5).int()}, TypeError, r"got torch\.int32"),
        (X, {"attn_mask": [[True]]}, TypeError, "attn_mask must .* got list"),
        (X, {"attn_mask": torch.ones(4, 5).to_sparse()}, TypeError, r"got torch\.sparse_coo"),
        (
            X,
            {"attn_mask": torch.ones(5, 4)},
            ValueError,
            r"to \(2, 3, 4, 5\), the shape of the scores; got \(5, 4\)",
        ),
        (X, {"attn_mask": torch.ones(1, 1, 1, 1, 1)}, ValueError, r"got \(1, 1, 1, 1, 1\)"),
        (X, {"attn_mask": torch.ones(5, device="meta")}, ValueError, "attn_mask .* got meta"),
        (X, {"key_lengths": torch.ones(2)}, TypeError, r"got torch\.float32"),
        (X, {"key_lengths": [1, 2]}, TypeError, "key_lengths must .* got list"),
        (X, {"key_lengths": torch.ones(3).long()}, ValueError, r"batch, \(2,\); got \(3,\)"),
        (X, {"alibi_slopes": torch.ones(2)}, ValueError, r"\(3,\), one per head; got \(2,\)"),
        (X, {"alibi_slopes": torch.ones(3).long()}, TypeError, r"got torch\.int64"),
        (X, {"alibi_slopes": 0.5}, TypeError, "alibi_slopes must .* got float"),
        (X, {"dropout_p": 1.5}, ValueError, r"from 0 to 1; got 1\.5"),
        (X, {"dropout_p": -0.1}, ValueError, r"from 0 to 1; got -0\.1"),
        (X, {"dropout_p": math.nan}, ValueError, "from 0 to 1; got nan"),
        (X, {"scale": "1"}, TypeError, "scale must be a number; got str"),
        (X, {"scale": torch.tensor(2.0)}, TypeError, "scale must be a number; got Tensor"),
        (X, {"backend": "cuda"}, ValueError, "got 'cuda'"),
    ],
)
def test_bad_input(x, options, error, message):
    with pytest.raises(error, match=message):
        entmax_attention(*x, **options)


def test_without_compiled_kernels_pytorch_is_used_with_one_warning(monkeypatch):
    x = tensors()
    expected = entmax_attention(*x, backend="torch")
    monkeypatch.setattr(cpu.native, "extension", None)
    monkeypatch.setattr(cpu, "missing_reason", "not built")
    monkeypatch.setattr(backends, "_has_warned", False)
    with pytest.warns(RuntimeWarning, match="not built"):
        assert_near(entmax_attention(*x), expected)
    assert_near(entmax_attention(*x), expected)  # a second warning would be an error
    with pytest.raises(RuntimeError, match="not built"):
        entmax_attention(*x, backend="cpu")
