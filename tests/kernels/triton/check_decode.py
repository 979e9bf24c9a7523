"""Decoding, pages and sparse rows by the Triton kernels."""

from dataclasses import replace

import pytest
import torch

from adasparse.kernels import cpu, reference
from adasparse.kernels.triton import attention_forward, attention_support, decode
from support.triton_problems import make, on_device

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state"),
]

HEADS = {"b": 2, "h": 4, "g": 2}


@pytest.mark.parametrize(("q", "k"), [(1, 600), (3, 700)])
def test_few_queries_against_many_keys(q, k):
    generator = torch.Generator().manual_seed(k)
    options = {"alpha": [1.0, 1.3, 1.5, 2.0], "key_lengths": torch.tensor([k, k - 70])}
    if q > 1:
        options["slopes"] = torch.tensor([0.01, 0.02, 0.001, 0.005], dtype=torch.float64)
        options["mask"] = torch.rand(2, 1, q, k, generator=generator) > 0.3
    problem, _ = make(**HEADS, q=q, k=k, **options)
    assert decode.is_decoding(problem)
    output, saved = attention_forward(on_device(problem), keep=False)
    expected, _ = reference.attention_forward(problem, keep=False)
    assert saved is None
    assert (output.cpu() - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_float_alpha_and_odd_head_sizes():
    problem, _ = make(h=1, q=1, k=520, d=3, e=80, alpha=1.5)
    output, _ = attention_forward(on_device(problem), keep=False)
    expected, _ = reference.attention_forward(problem, keep=False)
    assert (output.cpu() - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("is_causal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_support_is_that_of_the_reference(is_causal):
    alpha = [1.0, 1.3, 1.5, 2.0]
    problem, _ = make(h=4, g=2, q=65, k=100, alpha=alpha, is_causal=is_causal)
    rows = attention_support(on_device(problem))
    eye = torch.eye(100, dtype=torch.float64).expand(1, 2, 100, 100)
    weights, _ = reference.attention_forward(replace(problem, value=eye), keep=False)
    found = torch.sparse_csr_tensor(
        *(x.cpu() for x in (rows.crow, rows.col, rows.value)),
        size=(4 * 65, 100),
        check_invariants=True,
    ).to_dense()
    assert (found - weights.reshape(-1, 100)).abs().max() <= 2e-6


@pytest.mark.skipif(not cpu.is_available(), reason="the compiled CPU kernels are missing")
@pytest.mark.parametrize("alpha", [1.2, 1.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_support_is_that_of_the_cpu_kernel(alpha):
    problem, _ = make(h=2, q=65, k=200, alpha=alpha)
    rows = attention_support(on_device(problem))
    wanted = cpu.attention_support(problem)
    a, b = (
        torch.sparse_csr_tensor(
            *(x.cpu() for x in csr), size=(130, 200), check_invariants=True
        ).to_dense()
        for csr in ((x.crow, x.col, x.value) for x in (rows, wanted))
    )
    assert (a - b).abs().max() <= 2e-6
    # Only scores within rounding of the threshold may differ.
    differs = (a > 0) != (b > 0)
    assert (torch.maximum(a, b)[differs] <= 2e-6 ** min(1.0, 1 / (alpha - 1))).all()
