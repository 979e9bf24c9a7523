"""Half precision in CPU attention: read as it is, computed in float32, rounded once."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adasparse import entmax_attention
from adasparse.kernels import cpu
from support.helpers import randn

pytestmark = pytest.mark.skipif(not cpu.is_available(), reason="needs the compiled kernels")

HALVES = [torch.bfloat16, torch.float16]
#: (b, h, g, q, k, d, e): whole weights, lanes, candidates, tiles, decoding, gaps in vectors.
SIZES = [
    (2, 2, 2, 5, 7, 8, 8),
    (1, 2, 2, 70, 40, 20, 12),
    (1, 2, 1, 50, 200, 64, 64),
    (2, 4, 2, 61, 300, 16, 24),
    (3, 2, 2, 1, 100, 33, 31),
    (1, 4, 1, 1, 700, 64, 65),
    (1, 1, 1, 600, 600, 32, 32),
]


def leaves(sizes, dtype):
    b, h, g, q, k, d, e = sizes
    shapes = (b, h, q, d), (b, g, k, d), (b, g, k, e)
    return [randn(shape, dtype=dtype, seed=i).requires_grad_() for i, shape in enumerate(shapes)]


def mask_of(kind, sizes, dtype):
    b, h, _, q, k, _, _ = sizes
    if kind is None:
        return None
    if kind == "bool":
        return randn((1, 1, q, k), seed=7) < 0.8
    if kind == "half":
        return randn((b, 1, q, k), dtype=dtype, seed=7).requires_grad_()
    return randn((1, h, 1, k), seed=7).requires_grad_()


def results(query, key, value, mask, alpha, dtype, **options):
    """Return the output and all gradients, for a gradient that ``dtype`` holds."""
    output = entmax_attention(query, key, value, mask, alpha=alpha, enable_gqa=True, **options)
    grad = randn(output.shape, dtype=dtype, seed=11).to(output.dtype)
    inputs = [query, key, value, alpha]
    if mask is not None and mask.requires_grad:
        inputs.append(mask)
    return [output.detach(), *torch.autograd.grad(output, inputs, grad)]


@pytest.mark.parametrize("mask", [None, "bool", "half", "float"])
@pytest.mark.parametrize("alpha", [1.05, 1.5, 2.0])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_equals_float32_inputs_rounded_at_the_end(sizes, dtype, alpha, mask):
    half = leaves(sizes, dtype)
    wide = [x.detach().float().requires_grad_() for x in half]
    added = mask_of(mask, sizes, dtype)
    as_wide = added
    if added is not None and added.dtype == dtype:
        as_wide = added.detach().float().requires_grad_()
    exponent = torch.full((sizes[1],), alpha, dtype=torch.float64, requires_grad=True)
    options = {"is_causal": sizes[3] == sizes[4]}
    got = results(*half, added, exponent, dtype, **options)
    want = results(*wide, as_wide, exponent, dtype, **options)
    for x, y in zip(got, want, strict=True):
        assert torch.equal(x, y.to(x.dtype))
    assert [x.dtype for x in got[:4]] == [dtype] * 4


class _Conversions(TorchDispatchMode):
    """Largest number of elements that PyTorch converted at a time."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            self.largest = max(self.largest, result.numel())
        return result


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_whole_tensors_are_not_converted(dtype):
    query, key, value = leaves((1, 2, 2, 40, 300, 16, 16), dtype)
    with _Conversions() as seen:
        output = entmax_attention(query, key, value, alpha=torch.tensor([1.2, 1.5]))
        output.backward(torch.ones_like(output))
    assert seen.largest <= 2  # alpha
    assert key.grad.dtype == dtype


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_float32_mask_keeps_its_digits(dtype):
    query, key, value = (x.detach() for x in leaves((1, 1, 1, 3, 9, 8, 8), dtype))
    mask = 1 + randn((3, 9)) * 1e-3
    output = entmax_attention(query, key, value, mask, alpha=2.0)
    want = entmax_attention(query.float(), key.float(), value.float(), mask, alpha=2.0)
    rounded = entmax_attention(query, key, value, mask.to(dtype), alpha=2.0)
    assert torch.equal(output, want.to(dtype))
    assert not torch.equal(output, rounded) or dtype == torch.float16


@pytest.mark.parametrize("name", cpu.available_isas())
def test_every_instruction_set(name):
    before = cpu.isa()
    cpu.use_isa(name)
    try:
        for dtype in HALVES:
            test_equals_float32_inputs_rounded_at_the_end(
                (1, 2, 1, 50, 200, 64, 40), dtype, 1.3, None
            )
    finally:
        cpu.use_isa(before)


def test_threads_do_not_change_half_precision():
    inputs = leaves((2, 4, 2, 130, 300, 32, 32), torch.bfloat16)
    alpha = torch.linspace(1.0, 2.0, 4, dtype=torch.float64, requires_grad=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(results(*inputs, None, alpha, torch.bfloat16))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))
