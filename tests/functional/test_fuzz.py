"""Random calls of the kernels against an independent bisection in long double."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from adasparse.functional import entmax, entmax_attention, entmax_attention_support
from support.long_double import entmax_row

BACKENDS = ("cpu", "torch")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ALPHAS = (
    1.0,
    1.0 + 1e-7,
    1.01,
    1.25,
    1.5,
    1.75,
    1.999,
    2.0,
    2.001,
    2.5,
    4.0,
    8.0,
    30.0,
    300.0,
    1e3,
)
#: Of a weight, beyond its rounding to the dtype.
ERRORS = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}
CALLS = 120
SLOW_CALLS = 20_000


def strided(random: np.random.Generator, x: Tensor) -> Tensor:
    """Return the same numbers at other strides."""
    kind = random.integers(4)
    if kind == 0 and x.dim() > 1:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if kind == 1:
        wide = x.new_empty(*x.shape[:-1], 2 * x.shape[-1])
        wide[..., ::2] = x
        return wide[..., ::2]
    if kind == 2 and x.dim() == 4:
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    return x


def draw_alpha(random: np.random.Generator) -> float:
    kind = random.integers(3)
    if kind == 0:
        return float(random.choice(ALPHAS))
    return float(random.uniform(1, 2)) if kind == 1 else float(10 ** random.uniform(0, 3))


def expected_rows(scores: Tensor, alpha: Tensor) -> Tensor:
    """Return the weights of ``(..., n)`` for an alpha that broadcasts to ``(..., 1)``."""
    alphas = alpha.double().expand(*scores.shape[:-1], 1)
    out = torch.zeros(scores.shape, dtype=torch.float64)
    for at in np.ndindex(*scores.shape[:-1]):
        row = entmax_row(scores[at].double().numpy(), alphas[at].item())
        out[at] = torch.from_numpy(row.astype(np.float64))
    return out


def assert_weights(got: Tensor, expected: Tensor, size: float, story: str) -> None:
    error = (got.double() - expected).abs()
    rounding = torch.finfo(got.dtype).eps * expected.abs() + torch.finfo(got.dtype).tiny
    allowed = ERRORS[got.dtype] * size + rounding
    assert (error <= allowed).all(), f"{story}: off by {error.max():.3g}"


def fuzz_rows(random: np.random.Generator, backend: str, story: str) -> None:
    dtype = DTYPES[random.integers(4)]
    rows, n = int(random.integers(1, 5)), int(random.choice([1, 2, 3, 7, 16, 33, 70]))
    alpha = draw_alpha(random)
    size = 10.0 ** random.uniform(-3, 3) / (alpha - 1 if random.integers(2) and alpha > 1.1 else 1)
    scores = torch.from_numpy(random.standard_normal((rows, n)) * size)
    if random.integers(3) == 0:
        scores = (scores / size * 4).round() / 4 * size  # ties
    if random.integers(3) == 0:
        scores[torch.from_numpy(random.random((rows, n)) < 0.3)] = -math.inf
    if random.integers(4) == 0:
        scores += 10.0 ** random.uniform(0, 3)
    scores = strided(random, scores.clamp(-6e4, 6e4).where(~scores.isneginf(), scores).to(dtype))
    given: float | Tensor = alpha
    if random.integers(2):
        given = torch.tensor([draw_alpha(random) for _ in range(rows)], dtype=torch.float64)[
            :, None
        ]
    dim = int(random.choice([-1, 0]))
    moved = scores.T if dim == 0 else scores
    moved_alpha = given.T if dim == 0 and isinstance(given, Tensor) else given
    got = entmax(moved, moved_alpha, dim=dim, backend=backend)
    expected = expected_rows(scores, torch.as_tensor(given, dtype=torch.float64))
    assert got.dtype == dtype
    assert_weights(got.T if dim == 0 else got, expected, 1, story)


@dataclass
class Call:
    """An attention call whose scores are exact in float64."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict
    scores: Tensor  # (b, h, q, k), masked
    alpha: Tensor


def draw_attention(random: np.random.Generator) -> Call:
    """Draw small whole numbers and scales that are powers of two: no sum is rounded in float32."""
    dtype = DTYPES[random.integers(4)]
    b, g, e = int(random.integers(1, 3)), int(random.integers(1, 3)), int(random.choice([1, 3, 9]))
    h = g * int(random.integers(1, 3))
    d = int(random.choice([1, 4, 8, 17]))
    q, k = int(random.choice([1, 2, 5, 26])), int(random.choice([1, 3, 16, 65, 140, 300]))

    def whole(*shape: int) -> Tensor:
        return torch.from_numpy(random.integers(-4, 5, shape)).double()

    query, key = whole(b, h, q, d), whole(b, g, k, d)
    if random.integers(8) == 0:
        key = key[:, :, :1].expand(-1, -1, k, -1).clone()
    value = torch.from_numpy(random.standard_normal((b, g, k, e))).to(dtype)
    scale = float(random.choice([0.0, *(2.0**x for x in range(-12, 3))]))
    alpha: float | Tensor = draw_alpha(random)
    if random.integers(2):
        shape = [(h,), (1, h, 1, 1), (b, h, q, 1)][random.integers(3)]
        draws = [draw_alpha(random) for _ in range(math.prod(shape))]
        alpha = torch.tensor(draws, dtype=torch.float64).reshape(shape)
    options: dict = {"alpha": alpha, "scale": scale, "enable_gqa": h != g}
    scores = scale * query @ key.repeat_interleave(h // g, 1).mT
    i, j = torch.arange(q)[:, None], torch.arange(k)
    if random.integers(4) == 0:
        slopes = torch.tensor([2.0 ** -int(x) for x in random.integers(1, 8, h)])
        options["alibi_slopes"] = slopes
        scores = scores - slopes[:, None, None].double() * (i + k - q - j).abs()
    kind = random.integers(4)
    shape = [(q, k), (b, 1, 1, k), (1, h, q, k), (b, h, q, k)][random.integers(4)]
    if kind == 0:
        options["attn_mask"] = torch.from_numpy(random.random(shape) < 0.7)
        scores = scores.masked_fill(~options["attn_mask"], -math.inf)
    elif kind == 1:
        mask = whole(*shape) / 4
        mask[torch.from_numpy(random.random(shape) < 0.2)] = -math.inf
        options["attn_mask"] = mask.to(dtype)
        scores = scores + mask
    if random.integers(3) == 0:
        options["is_causal"] = True
        scores = scores.masked_fill(j > i, -math.inf)
    if random.integers(3) == 0:
        options["key_lengths"] = torch.from_numpy(random.integers(0, k + 1, b))
        scores = scores.masked_fill(j >= options["key_lengths"][:, None, None, None], -math.inf)
    wide = torch.as_tensor(alpha, dtype=torch.float64)
    wide = wide.reshape(1, -1, 1, 1) if wide.dim() < 4 else wide
    tensors = (strided(random, x.to(dtype)) for x in (query, key, value))
    return Call(*tensors, options, scores, wide)


def fuzz_attention(random: np.random.Generator, backend: str, story: str) -> None:
    call = draw_attention(random)
    weights = expected_rows(call.scores, call.alpha)
    inputs = (call.query, call.key, call.value)
    got = entmax_attention(*inputs, **call.options, backend=backend)
    per_head = call.value.double().repeat_interleave(weights.shape[1] // call.value.shape[1], 1)
    size = float(per_head.abs().max())
    # Weights in float32 are right to 1e-6 each; so is their sum with the values.
    assert_weights(got, weights @ per_head, 10 * max(1.0, size), story)
    support = entmax_attention_support(*inputs[:2], **call.options, backend=backend)
    assert (support.value > 0).all(), f"{story}: a weight of zero in the support"
    rows = torch.zeros(weights.shape, dtype=torch.float64).flatten(0, 2)
    place = torch.arange(len(rows)).repeat_interleave(support.crow.diff())
    rows[place, support.col] = support.value.double()
    assert_weights(rows.view(weights.shape).to(got.dtype), weights, 1, story)


def fuzz(call: int) -> None:
    random = np.random.default_rng([21, call])
    backend = BACKENDS[call % 2]
    story = f"call {call}, backend {backend}"
    (fuzz_rows if random.integers(2) else fuzz_attention)(random, backend, story)


@pytest.mark.parametrize("part", range(4))
def test_random_calls(part):
    for call in range(part, CALLS, 4):
        fuzz(call)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_calls(part):
    for call in range(CALLS + part, SLOW_CALLS, 20):
        fuzz(call)
