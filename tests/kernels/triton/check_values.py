"""NaN and infinities: they matter where they are seen and have weight, and nowhere else."""

from dataclasses import replace

import pytest
import torch

from adasparse.kernels import reference
from adasparse.kernels import torch as torch_kernels
from adasparse.kernels.triton import attention_forward, decode
from support.triton_problems import (
    TOLERANCE,
    computed,
    expected,
    in_pages,
    make,
    on_device,
    outcome_of,
    packed,
)

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

BAD = torch.tensor([torch.nan, torch.inf, -torch.inf])
SINKS = torch.tensor([0.5, -torch.inf, 1.0, 2.0], dtype=torch.float64)
ALPHAS = [1.0, 1.3, 1.5, 2.0]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def hidden(q, k, keys):
    """Bool mask that hides some keys from every query."""
    return (~torch.isin(torch.arange(k), torch.tensor(keys))).expand(1, 1, q, k)


def damaged(problem, keys):
    """The problem with values of some keys, one after another, NaN, infinity and minus infinity."""
    value = problem.value.clone()
    for n, j in enumerate(keys):
        value[..., j, n % 3 :: 3] = BAD[n % 3]
    return replace(problem, value=value)


def assert_near(found, wanted, name="output"):
    assert found.isfinite().all(), name
    error = (found.double() - wanted).abs().max()
    assert error <= TOLERANCE * wanted.abs().max() + 1e-6, (name, float(error))


def assert_unmoved(problem, grad, keys):
    """Values of ``keys``, which have no weight, change neither the output nor a gradient."""
    found, wanted = computed(damaged(problem, keys), grad), expected(problem, grad)
    for name, x in wanted.items():
        assert_near(found[name], x, name)


@pytest.mark.parametrize("alpha", [1.0, 1.5, slow(2.0), slow(1.3), slow(ALPHAS)], ids=str)
def test_values_of_hidden_keys(alpha):
    keys, h = [0, 5, 66], len(alpha) if isinstance(alpha, list) else 1
    problem, grad = make(h=h, alpha=alpha, q=17, k=70, mask=hidden(17, 70, keys))
    assert_unmoved(problem, grad, keys)


@pytest.mark.parametrize(
    ("alpha", "dtype", "options"),
    [
        (1.5, torch.float32, {"softcap": 20.0}),
        slow(1.0, torch.float32, {}),
        slow(2.0, torch.float16, {}),
        slow(ALPHAS, torch.bfloat16, {"softcap": 20.0}),
    ],
    ids=str,
)
def test_queries_and_keys_that_are_hidden(alpha, dtype, options):
    keys, queries, h = [0, 5, 66], [1, 12], len(alpha) if isinstance(alpha, list) else 1
    mask = hidden(17, 70, keys).clone()
    mask[..., queries, :] = False
    problem, grad = make(h=h, alpha=alpha, q=17, k=70, mask=mask, dtype=dtype, **options)
    query, key = problem.query.clone(), problem.key.clone()
    query[..., queries, :3], key[..., keys, 3:6] = BAD.to(dtype), BAD.to(dtype)
    found = computed(replace(problem, query=query, key=key), grad)
    for name, x in computed(problem, grad).items():
        assert torch.equal(found[name], x), name


@pytest.mark.parametrize("options", [{"is_causal": True}, slow({"window_right": 3})], ids=str)
def test_keys_that_some_queries_see(options):
    """Those that do not are in the same tile: their gradients were NaN."""
    problem, grad = make(h=1, alpha=1.5, q=40, k=40, window_left=20, **options)
    key, bad = problem.key.clone(), 36
    key[..., bad, :] = torch.nan
    wanted = computed(problem, grad)
    found = computed(replace(problem, key=key), grad)
    first = bad - options.get("window_right", 0)
    for name in ("output", "query"):
        assert torch.equal(found[name][:, :, :first], wanted[name][:, :, :first]), name
        assert found[name][:, :, first:].isnan().all(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, slow(torch.float16)], ids=str)
def test_values_of_hidden_keys_in_half_precision(dtype):
    keys = [0, 5, 66]
    mask = hidden(17, 70, keys)
    problem, grad = make(h=2, alpha=[1.0, 1.5], q=17, k=70, mask=mask, dtype=dtype)
    found, wanted = computed(damaged(problem, keys), grad), computed(problem, grad)
    for name, x in wanted.items():
        assert (found[name].double() - x).abs().max() <= 0.01 * x.abs().max(), name


def test_values_outside_of_the_support_of_some_queries():
    problem, grad = make(h=3, alpha=[1.3, 1.5, 2.0], q=70, k=70, is_causal=True)
    eye = torch.eye(70, dtype=torch.float64).expand(1, 3, 70, 70)
    weights, _ = reference.attention_forward(replace(problem, value=eye), keep=False)
    keys = [3, 20, 66]
    is_apart = (weights[..., keys] == 0).all(-1)  # from the values that are damaged
    assert 0.2 < is_apart.double().mean() < 0.9
    bad = damaged(problem, keys)
    found, wanted = computed(bad, grad), expected(problem, grad)
    plain = outcome_of(torch_kernels, bad, grad)
    assert_near(found["output"][is_apart], wanted["output"][is_apart])
    assert_near(found["query"][is_apart], wanted["query"][is_apart])
    assert found["query"][~is_apart].isnan().any(-1).all()
    torch.testing.assert_close(found["output"], plain["output"], equal_nan=True)


@pytest.mark.parametrize("alpha", [slow(1.0), 1.5], ids=str)
def test_values_of_weights_that_are_dropped(alpha):
    problem, grad = make(h=1, alpha=alpha, q=17, k=70, spread=0.5, dropout_p=0.5)
    bad = damaged(replace(problem, seed=torch.tensor(3)), [0])
    found, plain = computed(bad, grad), outcome_of(torch_kernels, bad, grad)
    share = plain["output"][..., 0].isnan().double().mean()
    assert 0.1 < share < 0.9
    torch.testing.assert_close(found["output"], plain["output"], equal_nan=True)
    assert torch.equal(found["query"].isnan(), plain["query"].isnan())


def test_values_of_hidden_keys_with_every_option():
    keys = [0, 5, 66]
    mask = torch.where(hidden(17, 70, keys), torch.randn(1, 1, 17, 70), -torch.inf)
    problem, grad = make(
        h=4, g=2, alpha=ALPHAS, q=17, k=70, mask=mask, sinks=SINKS, softcap=20.0, dropout_p=0.2,
        slopes=torch.tensor([0.1, 0.2, 0.0, 0.3], dtype=torch.float64),
    )  # fmt: skip
    assert_unmoved(replace(problem, seed=torch.tensor(7)), grad, keys)


@pytest.mark.slow
def test_values_of_hidden_keys_above_two():
    keys = [0, 5, 60]
    problem, grad = make(h=1, alpha=[2.5], q=17, k=65, mask=hidden(17, 65, keys))
    found, wanted = computed(damaged(problem, keys), grad), computed(problem, grad)
    for name, x in wanted.items():
        assert (found[name] - x).abs().max() <= TOLERANCE * x.abs().max(), name


@pytest.mark.parametrize(
    ("is_paged", "is_decoding"),
    [(False, True), (True, False), slow(False, False), slow(True, True)],
)
def test_values_of_packed_sequences_that_no_query_sees(monkeypatch, is_paged, is_decoding):
    monkeypatch.setattr(decode, "MIN_KEYS", 65)
    problem, _ = packed([1, 3], [129, 70], h=4, g=2, alpha=ALPHAS, window_left=20, sinks=SINKS)
    if is_paged:
        problem = in_pages(problem, [129, 70])
    assert decode.is_decoding(problem)
    wanted, _ = reference.attention_forward(problem, keep=False)
    # The first query sees the last 21 keys, the others those from key 47 on: blocks have both.
    keys, first = ([100, 96, 65], 0) if not is_paged else ([3, 5, 7], 100)
    value = problem.value.clone()
    for n, j in enumerate(keys):
        if is_paged:  # key 100 of the first sequence, and 2 others of its page
            page = problem.block_table[0, first // value.shape[2]]
            value[page, :, j, n] = BAD[n]
        else:
            value[:, :, j, n] = BAD[n]
    bad = on_device(replace(problem, value=value))
    output, _ = attention_forward(bad, keep=not is_decoding)
    assert_near(output.cpu(), wanted)


@pytest.mark.parametrize("alpha", [slow(1.0), 1.5])
def test_values_of_some_weight_in_decoding(alpha):
    mask = torch.ones(1, 1, 2, 600, dtype=torch.bool)
    mask[..., 0, [100, 300]] = False  # query 1 alone may see them
    problem, _ = make(h=2, g=1, q=2, k=600, alpha=alpha, mask=mask)
    key = problem.key.clone()
    key[:, :, 100] = key[:, :, 300] = 2 * problem.query[:, :1, 1]
    value = problem.value.clone()
    value[..., 100, :3] = torch.tensor([torch.nan, torch.inf, torch.inf])
    value[..., 300, 1:4] = torch.tensor([torch.inf, -torch.inf, -torch.inf])
    bad = replace(problem, key=key, value=value)
    assert decode.is_decoding(bad)
    output, _ = attention_forward(on_device(bad), keep=False)
    plain, _ = torch_kernels.attention_forward(bad, keep=False)
    torch.testing.assert_close(output.cpu(), plain, equal_nan=True)
    assert output[0, 0, 0].isfinite().all()
    assert output[0, 0, 1, :4].tolist()[1::2] == [torch.inf, -torch.inf]
    assert output[0, 0, 1, [0, 2]].isnan().all()
