"""Attention against the float64 reference, forward and backward."""

import functools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from adasparse import entmax, entmax_attention
from adasparse.kernels import cpu
from support.attention_case import actual, check, errors, expected, problem_of, tensors
from support.helpers import ALPHAS, BACKENDS, assert_near, randn

HALVES = [torch.bfloat16, torch.float16]


def bool_mask(shape, *, share=0.7, seed=5):
    return randn(shape, seed=seed).sigmoid() < share


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [*ALPHAS, 4.0])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1, 1), (2, 3, 5, 7, 3), (1, 2, 13, 65, 64), (3, 1, 33, 17, 8), (1, 1, 1, 130, 33)],
    ids=str,
)
def test_agrees_with_reference(sizes, alpha, dtype):
    exponent = torch.tensor(alpha, dtype=torch.float64)
    check(*tensors(*sizes, dtype=dtype), alpha=exponent, backends=BACKENDS)


@pytest.mark.parametrize("d", [1, 3, 7, 64, 65, 127, 512])
@pytest.mark.parametrize("e", [1, 5, 64, 129])
def test_any_head_size(d, e):
    check(*tensors(1, 2, 6, 19, d, e=e), alpha=torch.tensor([1.0, 1.5]), backends=BACKENDS)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 1.9, (1.0, 1.9)])
@pytest.mark.parametrize("k", [255, 256, 257, 700, 1500])
def test_long_rows(k, alpha):
    check(*tensors(1, 2, 35, k, 16), alpha=torch.tensor(alpha), backends=BACKENDS)


@pytest.mark.parametrize("alpha", [1.6, 1.75, 1.9])
def test_weights_at_the_edge_of_the_support(alpha):
    # Gradients go by p^(2 - alpha), so that weights of 1e-9 count; one was once off by 95%.
    for seed in range(4):
        x = tensors(1, 2, 33, 257, 65, seed=seed)
        check(*x, alpha=torch.tensor(alpha, dtype=torch.float64), seed=seed, backends=BACKENDS)


@pytest.mark.parametrize("sizes", [(1, 2, 300, 300, 24), (2, 4, 129, 140, 9)], ids=str)
def test_sparse_heads_beside_dense_ones(sizes):
    alpha = torch.linspace(1.0, 1.9, sizes[1], dtype=torch.float64)
    check(*tensors(*sizes), alpha=alpha, backends=BACKENDS)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_a_tenth_to_a_half_of_the_weights(alpha, is_causal):
    # Scores close to each other, as those of a model with its first weights.
    options = {"alpha": torch.tensor(alpha), "is_causal": is_causal, "backends": BACKENDS}
    check(*tensors(1, 2, 140, 530, 24, g=1), scale=0.05, enable_gqa=True, **options)
    check(*tensors(1, 1, 140, 530, 16, e=7), scale=0.05, dropout_p=0.2, **options)


@pytest.mark.skipif(not cpu.is_available(), reason="needs the compiled kernels")
def test_first_rows_of_a_causal_map_do_not_make_it_dense():
    # They have next to nothing to leave out; all heads were once computed as dense for it.
    x = tensors(1, 2, 600, 600, 16)
    _, saved = cpu.attention_forward(problem_of(*x, scale=0.05, is_causal=True), keep=True)
    assert not saved.is_dense.any()
    assert 0.1 < saved.weight.numel() / (600 * 601) < 0.5


@pytest.mark.skipif(not cpu.is_available(), reason="needs the compiled kernels")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", [0, 1000, 20_000])
def test_little_memory_for_the_support(size, is_causal, monkeypatch):
    forward = functools.partial(cpu.attention_forward, support_bytes=size)
    monkeypatch.setattr(cpu, "attention_forward", forward)
    options = {
        "alpha": torch.tensor([1.0, 1.5, 2.0]),
        "attn_mask": randn((40, 90), seed=3),
        "alibi_slopes": torch.tensor([0.1, 0.2, 0.3]),
        "dropout_p": 0.2,
    }
    check(*tensors(2, 3, 40, 90, 16), **options, is_causal=is_causal, backends=["cpu"])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["bool", "float", "float64"])
@pytest.mark.parametrize(
    "shape",
    [
        *[(11,), (1, 11), (7, 1), (7, 11), (1, 7, 11), (3, 7, 11), (3, 1, 1), (2, 1, 1, 11)],
        *[(1, 3, 1, 11), (2, 1, 7, 11), (2, 3, 7, 11), (2, 1, 7, 1), (1, 1, 1, 1)],
    ],
    ids=str,
)
def test_masks(shape, kind, is_causal):
    if kind == "bool":
        mask = bool_mask(shape)
    else:
        mask = randn(shape, dtype=torch.float64 if kind == "float64" else torch.float32, seed=6)
        mask = torch.where(bool_mask(shape), mask, -torch.inf) if len(shape) > 2 else mask
    alpha = torch.tensor([1.0, 1.4, 2.0])
    check(*tensors(), attn_mask=mask, is_causal=is_causal, alpha=alpha, backends=BACKENDS)


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize(("q", "k"), [(1, 1), (5, 5), (3, 9), (9, 3), (100, 100), (70, 300)])
def test_causal(q, k, alpha):
    x = tensors(1, 2, q, k, 4)
    check(*x, is_causal=True, alpha=torch.tensor(alpha), backends=BACKENDS)


def test_causal_is_that_of_pytorch():
    for q, k in ((5, 5), (3, 9), (9, 3)):
        x = tensors(2, 2, q, k, 4)
        wanted = torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True)
        for backend in BACKENDS:
            assert_near(entmax_attention(*x, alpha=1, is_causal=True, backend=backend), wanted)


@pytest.mark.parametrize("lengths", [[11, 4], [1, 0], [0, 0], [100, -3]])
def test_key_lengths(lengths):
    lengths = torch.tensor(lengths)
    alpha = torch.tensor([1.0, 1.4, 2.0])
    check(*tensors(), key_lengths=lengths, alpha=alpha, backends=BACKENDS)
    mask = randn((3, 1, 11), seed=4)
    options = {"attn_mask": mask, "is_causal": True, "alibi_slopes": torch.tensor([0.5, 0.1, 0])}
    check(*tensors(), key_lengths=lengths.int(), **options, backends=BACKENDS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_may_hold_anything(backend):
    query, key, value = tensors(2, 3, 7, 11, 8)
    grad, options = randn((2, 3, 7, 8)), {"key_lengths": torch.tensor([4, 9]), "backend": backend}
    wanted = actual(query, key, value, grad, **options)
    for sequence, length in ((0, 4), (1, 9)):
        key[sequence, :, length:] = torch.nan
        value[sequence, :, length:] = torch.inf
    found = actual(query, key, value, grad, **options)
    for name, x in wanted.items():
        assert torch.equal(x, found[name])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_queries", [1, 7])
@pytest.mark.parametrize("num_keys", [11, 40, 90])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("bad", [0.0, torch.nan, torch.inf])
def test_masked_keys_may_hold_anything(num_queries, num_keys, alpha, bad, backend):
    query, key, value = tensors(2, 3, num_queries, num_keys, 8)
    mask = torch.ones(num_queries, num_keys, dtype=torch.bool)
    mask[:, 2:5] = False
    grad = randn((2, 3, num_queries, 8))
    options = {"attn_mask": mask, "alpha": alpha, "backend": backend}
    wanted = actual(query, key, value, grad, **options)
    value[:, :, 3], value[:, :, 4], key[:, :, 2] = torch.inf, torch.nan, bad
    found = actual(query, key, value, grad, **options)
    for name, x in wanted.items():
        assert_near(found[name], x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_keys", [40, 600])
@pytest.mark.parametrize("alpha", [1.0, 1.5, torch.tensor(1.3)])
def test_queries_that_see_nothing_may_hold_anything(alpha, num_keys, backend):
    """They made gradients with respect to all keys NaN."""
    query, key, value = tensors(2, 3, 7, num_keys, 8)
    mask = torch.ones(7, num_keys, dtype=torch.bool)
    mask[2:5] = False
    grad = randn((2, 3, 7, 8))
    options = {"attn_mask": mask, "alpha": alpha, "backend": backend}
    wanted = actual(query, key, value, grad, **options)
    query[:, :, 2], query[:, :, 3] = torch.nan, torch.inf
    found = actual(query, key, value, grad, **options)
    for name, x in wanted.items():
        assert_near(found[name], x, scale=max(1, x.abs().max().item()))


@pytest.mark.parametrize(("q", "k"), [(7, 7), (3, 12), (12, 3)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_alibi(q, k, is_causal):
    slopes = torch.tensor([0.5, 0.0, -0.2])
    x = tensors(2, 3, q, k, 8)
    check(*x, alibi_slopes=slopes, is_causal=is_causal, alpha=torch.tensor(1.3), backends=BACKENDS)


def test_alibi_puts_the_last_query_at_the_last_key():
    query, key, value = torch.zeros(1, 2, 1), torch.zeros(1, 5, 1), torch.eye(5)[None]
    slopes = torch.tensor([10.0])
    for backend in BACKENDS:
        weights = entmax_attention(query, key, value, alibi_slopes=slopes, backend=backend)
        assert_near(weights[0], torch.eye(5)[3:])


@pytest.mark.parametrize("shape", [(), (1,), (3,), (3, 1, 1), (7, 1), (2, 1, 1, 1), (2, 3, 7, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alpha_of_any_shape(shape, dtype):
    alpha = 1 + randn(shape, dtype=dtype, seed=7).sigmoid()
    for exponent in (alpha, 1 + 3 * (alpha - 1)):
        check(*tensors(), alpha=exponent, backends=BACKENDS)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("g", [1, 2, 4])
def test_grouped_heads(g, alpha):
    options = {"enable_gqa": True, "is_causal": True, "alpha": torch.tensor(alpha)}
    check(*tensors(2, 4, 9, 13, 8, g=g, e=5), **options, backends=BACKENDS)


def test_scale():
    for scale in (0.0, -1.0, 3.0):
        check(*tensors(), scale=scale, backends=BACKENDS)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 1.75, 2.0, 3.0])
@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_half_precision(kind, alpha, dtype):
    query, key, value = tensors(2, 3, 20, 70, 16, dtype=dtype)
    grad, options = randn((2, 3, 20, 16), dtype=dtype, seed=8), {"alpha": torch.tensor(alpha)}
    if kind != "none":
        mask = bool_mask((2, 1, 1, 70)) if kind == "bool" else randn((20, 70), dtype=dtype)
        options["attn_mask"] = mask
    wanted = expected(query, key, value, grad, **options)
    allowed = errors(actual(query, key, value, grad, backend="torch", **options), wanted)
    for name, error in allowed.items():
        largest = wanted[name].abs().max()
        rounding = 1e-5 if name == "alpha" else torch.finfo(dtype).eps
        assert error <= 2 * rounding * max(largest, 10), name
        allowed[name] = 2 * error + 1e-5 * largest
    for backend in BACKENDS:
        found = errors(actual(query, key, value, grad, backend=backend, **options), wanted)
        for name, error in found.items():
            assert error <= allowed[name], f"{name}: error {error:.2e} above {allowed[name]:.2e}"


def layouts():
    b, h, n, d = 2, 3, 13, 8
    yield "(b, n, h, d)", lambda seed: randn((b, n, h, d), seed=seed).transpose(1, 2)
    yield "(h, d, n, b)", lambda seed: randn((h, d, n, b), seed=seed).permute(3, 0, 2, 1)
    yield "every other", lambda seed: randn((b, 2 * h, 2 * n, d), seed=seed)[:, ::2, ::2]
    yield "every other column", lambda seed: randn((b, h, n, 2 * d), seed=seed)[..., ::2]
    yield "packed", lambda seed: randn((b, n, 3, h, d), seed=seed).unbind(2)[1].transpose(1, 2)
    yield "expanded", lambda seed: randn((1, h, 1, d), seed=seed).expand(b, h, n, d)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in layouts()])
def test_any_strides(make):
    x = [make(seed) for seed in range(3)]
    mask = randn((13, 13, 2), seed=9).permute(2, 0, 1)[:, None]
    options = {"attn_mask": mask, "alpha": torch.tensor([[1.2], [1.5], [1.8]])[:, None]}
    check(*x, **options, backends=BACKENDS)
    grad = make(4)
    if "cpu" in BACKENDS:
        strided = actual(*x, grad, backend="cpu", **options)
        dense = actual(*(t.contiguous() for t in x), grad.contiguous(), backend="cpu", **options)
        for name, wanted in dense.items():
            assert torch.equal(strided[name], wanted), name


def batches_of_one_query():
    """Every number of keys for small batches; for the largest one, all but one are slow."""
    for batch, num_heads in ((1, 4), (5, 4), (37, 4), (90, 12)):
        for k in (1, 9, 40, 128, 129, 300):
            is_usual = batch < 90 or k == 300
            yield pytest.param(batch, num_heads, k, marks=() if is_usual else pytest.mark.slow)


@pytest.mark.parametrize("per_sequence", [False, True], ids=["per head", "per sequence"])
@pytest.mark.parametrize(("batch", "num_heads", "k"), list(batches_of_one_query()))
def test_one_query_as_when_text_is_generated(batch, num_heads, k, per_sequence):
    """Sequences are then solved side by side, which must make no difference to any of them."""
    query, key, value = tensors(batch, num_heads, 1, k, 8, g=2, e=24)
    alpha = torch.tensor([1.0, 1.3, 1.5, 2.0]).repeat(num_heads // 4)
    if per_sequence:
        alpha = (alpha + torch.arange(batch)[:, None] / 100).clamp(max=2.0)[..., None, None]
    lengths = torch.arange(batch) % (k + 1)
    options = {"alpha": alpha, "key_lengths": lengths, "enable_gqa": True}
    check(query, key, value, **options, backends=BACKENDS)
    together = entmax_attention(query, key, value, **options)
    for i in range(batch):
        own = {**options, "key_lengths": lengths[i : i + 1]}
        if per_sequence:
            own["alpha"] = alpha[i : i + 1]
        alone = entmax_attention(*(x[i : i + 1] for x in (query, key, value)), **own)
        assert torch.equal(alone[0], together[i])


@pytest.mark.skipif(not cpu.is_available(), reason="needs the compiled kernels")
@pytest.mark.parametrize(("d", "e"), [(32, 32), (32, 8), (5, 16), (7, 3)])
@pytest.mark.parametrize("n", [13, 300, 700])
def test_results_lie_in_memory_as_heads_side_by_side(n, d, e):
    """Models merge heads next; they and their projections then copy nothing."""
    sizes = {"query": (4, d), "key": (2, d), "value": (2, e)}
    inputs = [randn((2, n, h, size), seed=h + size) for h, size in sizes.values()]
    views = [x.transpose(1, 2).requires_grad_() for x in inputs]
    output = entmax_attention(*views, alpha=1.5, is_causal=True, enable_gqa=True)
    assert output.transpose(1, 2).is_contiguous()
    grad = randn((2, n, 4, e), seed=8).transpose(1, 2)
    strided = torch.autograd.grad(output, views, grad)
    assert all(x.transpose(1, 2).is_contiguous() for x in strided)
    copied = [views[0], *(x.detach().contiguous().requires_grad_() for x in views[1:])]
    output = entmax_attention(*copied, alpha=1.5, is_causal=True, enable_gqa=True)
    for got, want in zip(torch.autograd.grad(output, copied, grad), strided, strict=True):
        assert got.transpose(1, 2).is_contiguous()  # as after a cache, which copies
        assert torch.equal(got, want)
    dense_inputs = [x.detach().contiguous().requires_grad_() for x in views]
    dense = entmax_attention(*dense_inputs, alpha=1.5, is_causal=True, enable_gqa=True)
    assert dense.is_contiguous()
    assert torch.equal(output, dense)
    wanted = torch.autograd.grad(dense, dense_inputs, grad.contiguous())
    for got, want, name in zip(strided, wanted, sizes, strict=True):
        assert torch.equal(got, want), name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
def test_queries_that_see_nothing_get_zeros(alpha, dtype, backend):
    query, key, value = tensors(dtype=dtype)
    mask = torch.zeros(2, 1, 7, 11)
    mask[0, 0, 2] = -torch.inf
    mask[1] = -torch.inf
    for kind in (mask, mask == 0):
        options = {"attn_mask": kind, "alpha": torch.tensor(alpha), "backend": backend}
        found = actual(query, key, value, randn((2, 3, 7, 8), dtype=dtype), **options)
        assert all(x.isfinite().all() for x in found.values())
        for name in ("output", "query"):
            assert (found[name][0, :, 2] == 0).all() and (found[name][1] == 0).all()
        assert (found["key"][1] == 0).all() and (found["value"][1] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_numbers_stay_in_their_rows(bad, alpha, backend):
    query, key, value = tensors(2, 3, 7, 11, 8)
    clean = entmax_attention(query, key, value, alpha=alpha, backend=backend)
    query[1, 2, 3, 4] = bad
    output = entmax_attention(query, key, value, alpha=alpha, backend=backend)
    is_bad = torch.zeros(2, 3, 7, dtype=torch.bool)
    is_bad[1, 2, 3] = True
    assert output[is_bad].isnan().all()
    assert_near(output[~is_bad], clean[~is_bad])
    if backend == "cpu":
        assert torch.equal(output[~is_bad], clean[~is_bad])
    gradients = torch.autograd.grad(
        entmax_attention(query.requires_grad_(), key, value, alpha=alpha, backend=backend).sum(),
        query,
    )[0]
    assert gradients[~is_bad].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_key_reaches_those_who_see_it(backend):
    query, key, value = tensors(1, 2, 9, 9, 8)
    key[0, 1, 5] = torch.nan
    output = entmax_attention(query, key, value, is_causal=True, backend=backend)
    assert output[0, 1, 5:].isnan().all()
    assert output[0, 1, :5].isfinite().all() and output[0, 0].isfinite().all()


def test_large_scores():
    query, key, value = tensors(1, 2, 9, 40, 8)
    for alpha in (1.0, 1.3, 1.5, 2.0):
        weights = entmax(1000.0 * query.double() @ key.double().mT, alpha)
        for backend in BACKENDS:
            output = entmax_attention(query, key, value, alpha=alpha, scale=1e3, backend=backend)
            # float32 holds scores of this size to about 1e-3 only
            assert (output - weights @ value.double()).abs().max() < 1e-2


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1, 1), (2, 3, 19, 37, 33), (2, 2, 50, 128, 16), (1, 2, 50, 300, 64)],
    ids=str,
)
def test_every_instruction_set(sizes, dtype):
    x = tensors(*sizes, dtype=dtype)
    alpha = torch.linspace(1.0, 1.9, sizes[1], dtype=torch.float64)
    check(*x, alpha=alpha, backends=["cpu"])
    mask = randn((sizes[2], sizes[3]), dtype=dtype, seed=3)
    slopes = torch.full((sizes[1],), 0.1, dtype=torch.float64)
    for exponent in torch.tensor([1.0, 1.5, 2.5], dtype=torch.float64):
        options = {"attn_mask": mask, "alibi_slopes": slopes, "is_causal": True}
        check(*x, alpha=exponent, **options, backends=["cpu"])
    check(*x, dropout_p=0.3, attn_mask=mask > 0, backends=["cpu"])
    check(*x, scale=0.2 / sizes[-1] ** 0.5, backends=["cpu"])


@pytest.mark.usefixtures("nan_filled_memory")
def test_all_memory_is_written():
    for sizes in ((2, 3, 19, 37, 33), (1, 2, 50, 300, 7)):
        alpha = torch.linspace(1.0, 1.9, sizes[1])
        lengths = torch.tensor([sizes[3] // 2, 0][: sizes[0]])
        mask = torch.zeros(sizes[2], sizes[3])
        check(*tensors(*sizes), alpha=alpha, attn_mask=mask, key_lengths=lengths, backends=BACKENDS)


CHECKED = [
    {"alpha": 1.5},
    {"alpha": 1.00001, "is_causal": True},
    {"alpha": (1.2, 1.7), "mask": (2, 4, 5), "slopes": True},
    {"alpha": 2.5, "mask": (5,), "lengths": (5, 3)},
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_gradients_of_both_orders(case, backend):
    query, key, value = tensors(2, 2, 4, 5, 3, e=2, dtype=torch.float64)
    alpha = torch.tensor(case["alpha"], dtype=torch.float64)
    mask = randn(case["mask"], dtype=torch.float64, seed=4) if "mask" in case else None
    slopes = torch.tensor([0.2, 0.1], dtype=torch.float64) if "slopes" in case else None
    lengths = torch.tensor(case["lengths"]) if "lengths" in case else None

    def run(query, key, value, alpha, mask, slopes):
        return entmax_attention(
            query,
            key,
            value,
            alpha=alpha,
            attn_mask=mask,
            is_causal=case.get("is_causal", False),
            key_lengths=lengths,
            alibi_slopes=slopes,
            backend=backend,
        )

    inputs = (query, key, value, alpha, mask, slopes)
    inputs = [None if x is None else x.requires_grad_() for x in inputs]
    assert gradcheck(run, inputs, fast_mode=backend == "torch")
    assert gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_order_when_all_inputs_are_one(backend):
    x = randn((1, 2, 4, 3), dtype=torch.float64).requires_grad_()
    assert gradgradcheck(lambda x: entmax_attention(x, x, x, backend=backend), (x,))
    assert gradgradcheck(lambda x: entmax_attention(x, 2 * x, x.sin(), backend=backend), (x,))


def test_only_what_needs_a_gradient_gets_one():
    for backend in BACKENDS:
        for wanted in range(3):
            x = list(tensors())
            x[wanted].requires_grad_()
            entmax_attention(*x, backend=backend).sum().backward()
            assert [t.grad is not None for t in x] == [i == wanted for i in range(3)]
        alpha = torch.tensor(1.5, requires_grad=True)
        entmax_attention(*tensors(), alpha=alpha, backend=backend).sum().backward()
        assert alpha.grad.isfinite()


@st.composite
def cases(draw):
    """Arguments of every kind, as ``check`` takes them."""
    sides = st.one_of(st.integers(1, 9), st.sampled_from([16, 17, 31, 33, 64, 65, 130]))
    b, g, r = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    q, k, d, e = draw(sides), draw(sides), draw(sides), draw(sides)
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.float64]))
    seed = draw(st.integers(0, 99))
    h = g * r
    x = tensors(b, h, q, k, d, g=g, e=e, dtype=dtype, seed=seed)
    options = {"enable_gqa": True, "is_causal": draw(st.booleans()), "seed": seed}
    shape = draw(st.sampled_from([(), (h,), (b, h, q, 1), (b, 1, 1, 1), (1, h, q, 1)]))
    if draw(st.booleans()):
        alpha = torch.full(shape, draw(st.sampled_from(ALPHAS)), dtype=torch.float64)
    else:
        alpha = 1 + randn(shape, dtype=torch.float64, seed=seed).sigmoid()
    options["alpha"] = alpha
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([0.01, 0.5, 2.0]))
    kind = draw(st.sampled_from(["none", "bool", "float"]))
    if kind != "none":
        full = (b, h, q, k)
        shape = [n if draw(st.booleans()) else 1 for n in full][draw(st.integers(0, 3)) :]
        mask = bool_mask(tuple(shape), seed=seed)
        options["attn_mask"] = mask if kind == "bool" else randn(tuple(shape), dtype=dtype)
    if draw(st.booleans()):
        options["key_lengths"] = torch.tensor([draw(st.integers(0, k)) for _ in range(b)])
    if draw(st.booleans()):
        options["alibi_slopes"] = 0.3 * randn((h,), dtype=dtype, seed=seed).abs()
    if draw(st.booleans()):
        options["dropout_p"] = draw(st.sampled_from([0.1, 0.5]))
    return x, options


def check_case(case):
    x, options = case
    check(*x, **options, backends=BACKENDS)


SETTINGS = {"suppress_health_check": list(HealthCheck)}


@given(cases())
@settings(max_examples=120, **SETTINGS)
def test_random_cases(case):
    check_case(case)


@pytest.mark.slow
@given(cases())
@settings(max_examples=2000, **SETTINGS)
def test_many_random_cases(case):
    check_case(case)
