"""The weights themselves, as a matrix and without one."""

import pytest
import torch
from torch.autograd import gradcheck

from adasparse import (
    SparseWeights,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_weights,
)
from adasparse.kernels import reference
from adasparse.kernels.torch import attention as torch_attention
from support.attention_case import problem_of, tensors
from support.helpers import BACKENDS, assert_near, randn

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def to_matrix(weights, shape):
    """Sparse weights as ``(..., h, q, k)``, after a look at their order."""
    *lead, k = shape
    rows = torch.Size(lead).numel()
    assert weights.crow.dtype == weights.col.dtype == torch.int64
    assert weights.crow.shape == (rows + 1,)
    assert weights.col.shape == weights.value.shape == (weights.crow[-1].item(),)
    with torch.sparse.check_sparse_tensor_invariants():
        return torch.sparse_csr_tensor(*weights, (rows, k)).to_dense().reshape(shape)


pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0, (1.0, 1.3, 1.9)])
def test_matrix_and_support_agree_with_reference(alpha, dtype, backend):
    query, key, _ = tensors(2, 3, 20, 140, 16, dtype=dtype)
    mask = randn((20, 140), seed=5) > -0.5
    options = {"alpha": torch.tensor(alpha), "is_causal": True, "attn_mask": mask}
    identity = torch.eye(140).expand(2, 3, 140, 140)
    wanted, _ = reference.attention_forward(problem_of(query, key, identity, **options), keep=False)
    dense = entmax_attention_weights(query, key, backend=backend, **options)
    sparse = entmax_attention_support(query, key, backend=backend, **options)
    assert sparse.value.dtype == dtype
    assert_near(dense, wanted, scale=2)
    assert_near(to_matrix(sparse, (2, 3, 20, 140)), wanted, scale=2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_argument_counts(backend):
    query, key, _ = tensors(2, 4, 7, 11, 8, g=2)
    options = {
        "alpha": torch.tensor([1.0, 1.2, 1.5, 2.0]),
        "attn_mask": randn((2, 1, 1, 11), seed=5),
        "scale": 0.7,
        "key_lengths": torch.tensor([9, 0]),
        "alibi_slopes": torch.tensor([0.1, 0.2, 0.3, 0.4]),
        "enable_gqa": True,
        "backend": backend,
    }
    wanted = entmax_attention(query, key, torch.eye(11).expand(2, 2, 11, 11), **options)
    assert_near(entmax_attention_weights(query, key, **options), wanted, scale=2)
    sparse = entmax_attention_support(query, key, **options)
    assert_near(to_matrix(sparse, (2, 4, 7, 11)), wanted, scale=2)
    assert (sparse.crow[28:] == sparse.crow[28]).all()  # the second sequence sees nothing


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_of_queries_come_in_order(backend, monkeypatch):
    query, key, _ = tensors(2, 3, 23, 50, 8)
    alpha = 1 + randn((2, 3, 23, 1), seed=3).sigmoid()
    options = {
        "alpha": alpha,
        "attn_mask": randn((23, 50), seed=4),
        "is_causal": True,
        "alibi_slopes": torch.tensor([0.1, 0.0, 0.3]),
    }
    dense = entmax_attention_weights(query, key, backend=backend, **options)
    monkeypatch.setattr(torch_attention, "BLOCK_SIZE", 2 * 3 * 50 * 4)
    sparse = entmax_attention_support(query, key, backend=backend, **options)
    assert_near(to_matrix(sparse, dense.shape), dense)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_leading_dimensions(lead, backend):
    query, key = randn((*lead, 5, 4)), randn((*lead, 6, 4), seed=1)
    dense = entmax_attention_weights(query, key, backend=backend)
    assert dense.shape == (*lead, 5, 6)
    sparse = entmax_attention_support(query, key, backend=backend)
    assert_near(to_matrix(sparse, dense.shape), dense)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("q", "k"), [(0, 4), (4, 0), (0, 0)])
def test_nothing_to_weigh(q, k, backend):
    query, key = torch.zeros(2, 3, q, 4), torch.zeros(2, 3, k, 4)
    assert entmax_attention_weights(query, key, backend=backend).shape == (2, 3, q, k)
    sparse = entmax_attention_support(query, key, backend=backend)
    assert sparse.crow.tolist() == [0] * (6 * q + 1)
    assert sparse.col.shape == sparse.value.shape == (0,)


def test_dense_weights_have_gradients_and_sparse_ones_none():
    query, key, _ = tensors(1, 2, 4, 5, 3, dtype=torch.float64)
    alpha = torch.tensor([1.3, 1.6], dtype=torch.float64, requires_grad=True)
    query.requires_grad_()
    for backend in BACKENDS:
        assert gradcheck(
            lambda q, k, a: entmax_attention_weights(q, k, alpha=a, backend=backend),  # noqa: B023
            (query, key.requires_grad_(), alpha),
        )
        sparse = entmax_attention_support(query, key, alpha=alpha, backend=backend)
        assert not sparse.value.requires_grad


def test_autocast_does_not_round_the_scores():
    query, key, _ = tensors(1, 2, 9, 40, 16)
    rounded = query.bfloat16(), key.bfloat16()
    for backend in BACKENDS:
        wanted = entmax_attention_weights(*rounded, backend=backend)
        wanted_sparse = entmax_attention_support(*rounded, backend=backend)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            dense = entmax_attention_weights(query, key, backend=backend)
            sparse = entmax_attention_support(query, key, backend=backend)
        assert torch.equal(dense, wanted)
        assert all(torch.equal(x, y) for x, y in zip(sparse, wanted_sparse, strict=True))


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="torch 2.6 breaks the graph at operators whose sizes depend on numbers",
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_weights_compile(backend):
    query, key, _ = tensors(1, 2, 9, 40, 16)

    def run(query, key):
        return entmax_attention_support(query, 2 * key, backend=backend)

    found = torch.compile(run, fullgraph=True, backend="aot_eager")(query, key)
    for x, wanted in zip(found, run(query, key), strict=True):
        assert torch.equal(x, wanted)


def test_a_layout_still_works_with_a_warning():
    query, key, _ = tensors(1, 2, 9, 40, 16)
    with pytest.warns(DeprecationWarning, match="entmax_attention_support the nonzero"):
        sparse = entmax_attention_weights(query, key, layout="sparse")
    assert isinstance(sparse, SparseWeights)
    wanted = entmax_attention_support(query, key)
    assert all(torch.equal(x, y) for x, y in zip(sparse, wanted, strict=True))
    with pytest.warns(DeprecationWarning, match="entmax_attention_weights returns the matrix"):
        dense = entmax_attention_weights(query, key, layout="dense")
    assert torch.equal(dense, entmax_attention_weights(query, key))


def test_unknown_layout():
    with pytest.raises(ValueError, match=r"\['dense', 'sparse'\]; got 'csr'"):
        entmax_attention_weights(torch.zeros(2, 3), torch.zeros(2, 3), layout="csr")
