"""Screened attention against unscreened: every number is the same, bit for bit."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adasparse import entmax_attention
from adasparse.kernels import cpu

pytestmark = pytest.mark.skipif(
    "avx512" not in cpu.available_isas(), reason="no kernels, or no AVX-512"
)

KINDS = ["normal", "channel", "outlier", "equal", "threshold", "zeros", "denormal", "huge", "ties"]
MASKS = ["none", "causal", "bool", "float", "window", "lengths", "alibi"]


@pytest.fixture(autouse=True)
def screening_restored():
    """Leave the switch as it was."""
    before = cpu.screening()
    yield
    cpu.use_screening(before)


def keys_of(kind, shape, spread, generator):
    """Keys that make trouble of one kind."""
    key = torch.randn(shape, generator=generator) * spread
    if kind == "channel":
        key[..., 0] *= 1000
    elif kind == "outlier":
        key[..., shape[-2] // 2, :] *= 1e4
    elif kind == "equal":
        key[:] = key[..., :1, :]
    elif kind == "threshold":  # scores that differ by exactly the width of the support
        key[:] = 0
        key[..., 0] = torch.randint(0, 3, shape[:-1], generator=generator).float()
    elif kind == "zeros":
        key[torch.rand(shape[:-1], generator=generator) < 0.7] = 0
    elif kind == "denormal":
        key *= 1e-39
    elif kind == "huge":
        key[torch.rand(shape, generator=generator) < 0.01] = 1e30
        key[torch.rand(shape, generator=generator) < 0.01] = -1e30
    elif kind == "ties":
        key = key.round()
    return key


@st.composite
def calls(draw):
    """Arguments of ``entmax_attention``, and what they were made from."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    groups, share = draw(st.sampled_from([(1, 1), (2, 1), (1, 3)]))
    n = draw(st.sampled_from([257, 300, 321, 448, 513, 700]))
    d = draw(st.sampled_from([1, 3, 16, 20, 33, 64]))
    q = draw(st.sampled_from([17, 24, 50]))
    kind, mask = draw(st.sampled_from(KINDS)), draw(st.sampled_from(MASKS))
    spread = 10 ** draw(st.floats(-2, 2))
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16]))
    heads = groups * share
    query = torch.randn(1, heads, q, d, generator=generator)
    if kind == "threshold":
        query[:] = 0
        query[..., 0] = d**0.5
    key = keys_of(kind, (1, groups, n, d), spread, generator)
    value = torch.randn(1, groups, n, 8, generator=generator)
    alphas = st.sampled_from([1.02, 1.1, 1.25, 1.5, 1.5, 1.75, 2.0, 3.0])
    alpha = torch.tensor([draw(alphas) for _ in range(heads)], dtype=torch.float64)
    arguments = {"alpha": alpha, "enable_gqa": share > 1}
    if mask == "causal":
        arguments["is_causal"] = True
        query = query.repeat(1, 1, n // q, 1)
    elif mask == "bool":
        arguments["attn_mask"] = torch.rand(q, n, generator=generator) < 0.8
        arguments["attn_mask"][3] = False
    elif mask == "float":
        bias = torch.randn(1, heads, q, n, generator=generator) * spread
        bias[torch.rand(bias.shape, generator=generator) < 0.1] = -torch.inf
        arguments["attn_mask"] = bias.to(dtype)
    elif mask == "window":
        arguments["window"] = (290, 40)
        query = query.repeat(1, 1, n // q, 1)
    elif mask == "lengths":
        arguments["key_lengths"] = torch.tensor([n - 31])
    elif mask == "alibi":
        arguments["alibi_slopes"] = torch.rand(heads, generator=generator).double()
    return query.to(dtype), key.to(dtype), value.to(dtype), arguments


def results(screening, query, key, value, arguments, *, threads=1):
    """Output and gradients as one screening gives them."""
    cpu.use_screening(screening)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inputs = [x.clone().requires_grad_() for x in (query, key, value)]
        named = dict(arguments)
        for name in ("alpha", "alibi_slopes", "attn_mask"):
            if name in named and named[name].is_floating_point():
                named[name] = named[name].clone().requires_grad_()
                inputs.append(named[name])
        out = entmax_attention(*inputs[:3], **named)
        weight = torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape) % 7 - 3
        return [out, *torch.autograd.grad(out, inputs, weight)]
    finally:
        torch.set_num_threads(before)


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        is_nan = a.isnan()
        assert torch.equal(is_nan, b.isnan())
        assert torch.equal(a.masked_fill(is_nan, 0), b.masked_fill(is_nan, 0))


def check(call):
    assert_same(results("forced", *call), results("off", *call))


relaxed = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@settings(max_examples=200, **relaxed)
@given(calls())
def test_screening_changes_no_bit(call):
    check(call)


@pytest.mark.slow
@settings(max_examples=2000, **relaxed)
@given(calls())
def test_screening_changes_no_bit_of_many(call):
    check(call)


@pytest.mark.parametrize("choice", ["auto", "forced"])
@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
def test_long_rows_are_the_same_in_support_and_output(alpha, spread, choice):
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(1, 2, n, 64, generator=generator) for n in (72, 5000, 5000))
    arguments = {"alpha": torch.tensor(alpha, dtype=torch.float64)}
    ours = results(choice, query * spread, key, value, arguments)
    assert_same(ours, results("off", query * spread, key, value, arguments))


@pytest.mark.parametrize("alpha", [1.3, 1.5, 1.9])
@pytest.mark.parametrize("choice", ["auto", "forced"])
def test_strips_unlike_the_one_before(choice, alpha):
    """Strips of 24 queries: sparse ones, broad ones, and ones broad in their first keys alone."""
    generator = torch.Generator().manual_seed(11)
    query, key, value = (torch.randn(1, 1, n, 64, generator=generator) for n in (240, 900, 900))
    query[:, :, 48:72] *= 0.01
    key[:, :, :256, :32] = key[:, :, :1, :32]
    query[:, :, 96:120, 32:] = 0
    query[:, :, 144:168, 32:] *= 0.01
    query[:, :, 144:192, :32] *= 4
    arguments = {"alpha": torch.tensor(alpha, dtype=torch.float64)}
    one = results(choice, query, key, value, arguments)
    assert_same(one, results("off", query, key, value, arguments))
    assert_same(one, results(choice, query, key, value, arguments, threads=3))


@pytest.mark.parametrize("isa", cpu.available_isas())
def test_every_instruction_set_screens_alike(isa):
    before = cpu.isa()
    cpu.use_isa(isa)
    try:
        generator = torch.Generator().manual_seed(5)
        query, key, value = (torch.randn(1, 1, n, 24, generator=generator) for n in (30, 400, 400))
        check((query, key, value, {"alpha": torch.tensor(1.5, dtype=torch.float64)}))
    finally:
        cpu.use_isa(before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 3e38])
@pytest.mark.parametrize("place", ["key", "query", "value", "hidden", "mask"])
def test_what_is_not_finite_is_the_same(bad, place):
    generator = torch.Generator().manual_seed(7)
    query, key, value = (torch.randn(1, 2, n, 64, generator=generator) for n in (48, 600, 600))
    arguments = {"alpha": torch.tensor(1.5, dtype=torch.float64)}
    if place == "key":
        key[0, 1, 333, 5] = bad
    elif place == "query":
        query[0, 0, 7, 63] = bad
    elif place == "value":
        value[0, 0, 100] = bad
    elif place == "hidden":
        key[0, :, 590:] = bad
        arguments["key_lengths"] = torch.tensor([590])
    else:
        arguments["attn_mask"] = torch.zeros(48, 600)
        arguments["attn_mask"][5, 17] = bad
    check((query, key, value, arguments))


def test_threads_change_no_bit_of_screened_attention():
    generator = torch.Generator().manual_seed(9)
    query, key, value = (torch.randn(1, 3, 700, 64, generator=generator) for _ in range(3))
    arguments = {"alpha": torch.tensor([1.3, 1.5, 1.9], dtype=torch.float64), "is_causal": True}
    one = results("auto", query, key, value, arguments)
    for threads in (2, 5):
        assert_same(results("auto", query, key, value, arguments, threads=threads), one)


def test_screening_is_named_and_checked():
    cpu.use_screening("off")
    assert cpu.screening() == "off"
    with pytest.raises(ValueError, match="auto, off, forced; got 'sometimes'"):
        cpu.use_screening("sometimes")
