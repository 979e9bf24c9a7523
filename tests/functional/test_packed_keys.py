"""Packed keys: the bits of plain keys, whatever happened to them before."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import adasparse
from adasparse import (
    PackedKeys,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_weights,
)
from adasparse._threads import thread_limit
from adasparse.kernels import cpu
from support.attention_case import check
from support.helpers import randn

pytestmark = pytest.mark.skipif(
    not cpu.is_available(), reason="the compiled kernels are not installed"
)


def problem(*, b=2, h=4, g=2, q=1, k=900, d=32, e=16, spread=1.0, seed=0):
    sizes = ((b, h, q, d), (b, g, k, d), (b, g, k, e))
    query, key, value = (randn(size, seed=seed + i) for i, size in enumerate(sizes))
    return query * spread, key, value


def assert_same_bits(query, key, value, packed=None, **options):
    packed = PackedKeys(key) if packed is None else packed
    expected = entmax_attention(query, key, value, enable_gqa=True, **options)
    torch.testing.assert_close(
        entmax_attention(query, packed, value, enable_gqa=True, **options),
        expected,
        rtol=0,
        atol=0,
        equal_nan=True,
    )


OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "lengths": {"key_lengths": torch.tensor([700, 3])},
    "empty": {"key_lengths": torch.tensor([900, 0])},
    "window": {"window": (800, 10)},
    "alibi": {"alibi_slopes": torch.tensor([0.0, 0.01, 0.1, 1.0])},
    "mask": {"attn_mask": randn((2, 1, 1, 900), seed=8) > 0},
    "bias": {"attn_mask": 3 * randn((1, 4, 1, 900), seed=9)},
    "alpha per head": {"alpha": torch.tensor([1.05, 1.3, 1.5, 2.0])},
    "steep": {"alpha": 3.0},
    "dropout": {"dropout_p": 0.3},
    "scale": {"scale": -0.4},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("q", [1, 3, 8, 40])
def test_every_option_has_the_bits_of_plain_keys(name, q):
    query, key, value = problem(q=q)
    options = {"alpha": 1.5, **OPTIONS[name]}
    packed = PackedKeys(key)
    outputs = []
    for keys in (key, packed):
        torch.manual_seed(3)
        outputs.append(entmax_attention(query, keys, value, enable_gqa=True, **options))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-6, 1.05, 1.25, 1.5, 1.75, 2.0, 3.0])
def test_few_queries_agree_with_the_reference(alpha):
    query, key, value = problem(q=2, k=1300)
    options = {"alpha": alpha, "enable_gqa": True, "key_lengths": torch.tensor([1300, 701])}
    check(query, key, value, backends=["cpu"], **options)
    assert_same_bits(
        query, key, value, **{name: x for name, x in options.items() if name != "enable_gqa"}
    )


@settings(max_examples=25)
@given(st.data())
def test_any_keys_have_the_bits_of_plain_keys(data):
    draw = data.draw
    d, k = draw(st.sampled_from([1, 3, 16, 33, 64])), draw(st.integers(513, 1500))
    query, key, value = problem(
        b=1,
        g=draw(st.sampled_from([1, 2, 4])),
        q=draw(st.integers(1, 8)),
        k=k,
        d=d,
        spread=draw(st.sampled_from([0.01, 1.0, 10.0, 100.0])),
        seed=draw(st.integers(0, 99)),
    )
    kind = draw(st.sampled_from(["", "channel", "equal", "zeros", "tiny", "huge", "nan", "inf"]))
    place = draw(st.integers(0, k - 1))
    if kind == "channel":
        key[..., 0] *= 1e4
    elif kind == "equal":
        key[:] = key[:, :, :1].clone()
    elif kind == "zeros":
        key[:, :, place:] = 0
    elif kind == "tiny":
        key *= 1e-41
    elif kind == "huge":
        key[:, :, place] = 1e30
    elif kind in ("nan", "inf"):
        key[:, :, place] = float(kind)
    assert_same_bits(query, key, value, alpha=draw(st.sampled_from([1.2, 1.5, 2.0])))


@pytest.mark.slow
@settings(max_examples=2000)
@given(st.data())
def test_any_keys_at_length(data):
    test_any_keys_have_the_bits_of_plain_keys.hypothesis.inner_test(data)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_one_query_has_the_bits_of_its_row_among_many(alpha):
    query, key, value = problem(q=50, k=1111)
    packed = PackedKeys(key)
    together = entmax_attention(query, key, value, alpha=alpha, enable_gqa=True)
    for i in (0, 31, 49):
        one = query[:, :, i : i + 1]
        alone = entmax_attention(one, packed, value, alpha=alpha, enable_gqa=True)
        assert torch.equal(alone, together[:, :, i : i + 1])


@pytest.mark.parametrize("hidden", [None, 5, 8990])
@pytest.mark.parametrize("q", [1, 4])
def test_keys_that_alibi_keeps_away_change_nothing(q, hidden):
    query, key, value = problem(b=1, h=4, g=4, q=q, k=9000, d=16)
    key[:, 2] *= 5
    if hidden is not None:
        key[:, 1, hidden] = torch.nan
    slopes = torch.tensor([0.5, 0.02, 0.1, 0.0])
    for lengths in (None, torch.tensor([6000])):
        assert_same_bits(query, key, value, alibi_slopes=slopes, key_lengths=lengths)


def test_threads_and_instruction_sets_change_nothing(isa):
    query, key, value = problem(b=1, h=8, g=1, k=9000, d=64)
    packed = PackedKeys(key)
    outputs = []
    for threads in (1, 2, 3):
        with thread_limit(threads):
            outputs.append(entmax_attention(query, packed, value, enable_gqa=True))
            outputs.append(entmax_attention(query, key, value, enable_gqa=True))
    assert all(torch.equal(outputs[0], x) for x in outputs[1:])


def state(packed):
    """What the kernels read."""
    codes = packed.codes(*packed.to_dense().shape[:2])
    panels = -(-len(packed) // 16)
    if codes["codes"] is None:
        return [packed.to_dense()]
    return [packed.to_dense(), codes["codes"][:, :, :panels], codes["code_bounds"][..., :panels]]


def assert_same_state(packed, key):
    assert packed.shape == key.shape
    for x, y in zip(state(packed), state(PackedKeys(key)), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [(5, 1, 1, 40), (0, 16, 3), (1000, 1, 700), (17, 31)], ids=str)
def test_appending_is_packing_from_scratch(sizes, dtype):
    parts = [randn((2, 3, n, 20), dtype=dtype, seed=n) for n in sizes]
    packed = PackedKeys(parts[0])
    for part in parts[1:]:
        packed.append(part)
    assert_same_state(packed, torch.cat(parts, 2))
    assert torch.equal(packed.to_dense(), torch.cat(parts, 2))


def test_truncating_reordering_and_repeating_is_packing_from_scratch():
    key = randn((3, 2, 77, 8))
    packed = PackedKeys(key)
    packed.truncate(50)
    assert_same_state(packed, key[:, :, :50])
    packed.append(key[:, :, :3])
    beams = torch.tensor([2, 0, 0, 1])
    packed.reorder(beams)
    expected = torch.cat((key[:, :, :50], key[:, :, :3]), 2)[beams]
    assert_same_state(packed, expected)
    packed.repeat_interleave(2)
    assert_same_state(packed, expected.repeat_interleave(2, 0))
    packed.truncate(0)
    assert len(packed) == 0
    packed.append(expected.repeat_interleave(2, 0))
    assert_same_state(packed, expected.repeat_interleave(2, 0))


def test_memory_grows_ahead_of_need():
    packed = PackedKeys(randn((1, 1, 1000, 8)))
    packed.append(randn((1, 1, 1, 8)))
    before = packed.to_dense().data_ptr()
    for _ in range(100):
        packed.append(randn((1, 1, 1, 8)))
    assert packed.to_dense().data_ptr() == before


def test_large_codes_are_those_of_small_ones():
    key = randn((1, 1, 70_000, 64))
    packed = PackedKeys(key[:, :, :100])
    packed.append(key[:, :, 100:])
    query, value = randn((1, 1, 1, 64)), key[..., :4]
    assert torch.equal(entmax_attention(query, packed, value), entmax_attention(query, key, value))
    assert_same_state(packed, key)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)], ids=str)
def test_any_rank_is_packed(lead):
    key, value = randn((*lead, 600, 8)), randn((*lead, 600, 4))
    packed = PackedKeys(key)
    assert packed.shape == key.shape
    assert packed.dim() == key.dim()
    assert torch.equal(packed.to_dense(), key)
    query = randn((*lead, 2, 8))
    assert torch.equal(entmax_attention(query, packed, value), entmax_attention(query, key, value))


def test_one_memory_serves_a_batch_of_queries():
    key, value = randn((1, 2, 800, 16)), randn((1, 2, 800, 16))
    query = randn((5, 2, 1, 16))
    assert torch.equal(
        entmax_attention(query, PackedKeys(key), value), entmax_attention(query, key, value)
    )


def test_weights_and_support_take_packed_keys():
    query, key, _ = problem(g=4, k=700)
    packed = PackedKeys(key)
    assert torch.equal(
        entmax_attention_weights(query, packed), entmax_attention_weights(query, key)
    )
    for x, y in zip(
        entmax_attention_support(query, packed), entmax_attention_support(query, key), strict=True
    ):
        assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_other_dtypes_and_backends_read_the_keys(dtype, backend):
    query, key, value = (x.to(dtype) for x in problem(k=600))
    options = {"enable_gqa": True, "backend": backend}
    output = entmax_attention(query, PackedKeys(key), value, **options)
    assert output.dtype == dtype
    assert torch.equal(output, entmax_attention(query, key, value, **options))


def test_autocast_reads_the_keys_as_it_would_plain_ones():
    query, key, value = problem(k=600)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_bits(query, key, value)


def test_inference_mode_and_no_grad_mix():
    query, key, value = problem(g=4, k=600)
    with torch.inference_mode():
        packed = PackedKeys(key[:, :, :500] * 1)
    with torch.no_grad():
        packed.append(key[:, :, 500:])
    with torch.inference_mode():
        packed.reorder(torch.tensor([1, 0]))
        output = entmax_attention(query, packed, value)
    assert torch.equal(output, entmax_attention(query, key[[1, 0]], value))


@pytest.mark.parametrize("field", ["query", "value"])
def test_gradients_are_refused(field):
    query, key, value = problem(g=4)
    packed = PackedKeys(key)
    (query if field == "query" else value).requires_grad_()
    with pytest.raises(RuntimeError, match="PackedKeys has no gradients"):
        entmax_attention(query, packed, value)
    with torch.no_grad():
        entmax_attention(query, packed, value)


def test_keys_that_need_gradients_are_refused():
    key = randn((1, 1, 4, 2)).requires_grad_()
    with pytest.raises(RuntimeError, match="carry no gradients"):
        PackedKeys(key)
    assert len(PackedKeys(key.detach())) == 4
    with torch.no_grad():
        assert len(PackedKeys(key)) == 4


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: PackedKeys([1.0]), TypeError, "got list"),
        (lambda p: PackedKeys(torch.ones(3)), ValueError, r"got \(3,\)"),
        (lambda p: PackedKeys(torch.ones(3, 2, dtype=torch.int64)), TypeError, "got torch.int64"),
        (lambda p: p.append(torch.ones(2, 3, 1, 5)), ValueError, r"got \(2, 3, 1, 5\)"),
        (lambda p: p.append(torch.ones(2, 3, 1, 4).double()), ValueError, "got .*float64"),
        (lambda p: p.truncate(8), ValueError, "from 0 to 7; got 8"),
        (lambda p: p.truncate(-1), ValueError, "got -1"),
        (
            lambda p: PackedKeys(torch.ones(5, 2)).reorder(torch.tensor([0])),
            ValueError,
            r"got \(5, 2\)",
        ),
    ],
)
def test_mistakes_are_explained(call, error, message):
    with pytest.raises(error, match=message):
        call(PackedKeys(torch.ones(2, 3, 7, 4)))


def test_dtypes_must_agree():
    query, key, value = problem(g=4)
    with pytest.raises(TypeError, match=r"got torch\.float64, torch\.float32 and torch\.float64"):
        entmax_attention(query.double(), PackedKeys(key), value.double())


def test_compiles():
    query, key, value = problem(g=4, k=600)
    packed = PackedKeys(key)

    def run(query, value):
        return entmax_attention(query, packed, value)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(query, value), run(query, value))


def test_is_public():
    assert "PackedKeys" in adasparse.__all__
    assert repr(PackedKeys(torch.ones(1, 2, 3, 4))).startswith("PackedKeys(shape=(1, 2, 3, 4)")
