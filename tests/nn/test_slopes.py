import math

import pytest
import torch

from adasparse import entmax_attention_weights
from adasparse.nn import alibi_slopes, nape_slopes
from support.helpers import randn


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8, 16, 64])
def test_alibi_slopes_are_a_geometric_series(num_heads):
    expected = [2 ** (-8 * i / num_heads) for i in range(1, num_heads + 1)]
    torch.testing.assert_close(alibi_slopes(num_heads), torch.tensor(expected))


@pytest.mark.parametrize("num_heads", [3, 5, 6, 7, 12, 20])
def test_other_numbers_of_heads_take_every_other_slope_of_the_next_power(num_heads):
    below = 2 ** math.floor(math.log2(num_heads))
    expected = torch.cat([alibi_slopes(below), alibi_slopes(2 * below)[::2][: num_heads - below]])
    assert alibi_slopes(num_heads).shape == (num_heads,)
    torch.testing.assert_close(alibi_slopes(num_heads), expected)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 8])
def test_nape_slopes_are_those_of_half_of_the_heads(num_heads):
    half = num_heads // 2
    expected = [1 / (i + 1) for i in range(half)] + [0.0] * (num_heads - half)
    torch.testing.assert_close(nape_slopes(num_heads), torch.tensor(expected))


def test_slopes_are_what_attention_takes():
    query, key = randn((1, 4, 6, 8)), randn((1, 4, 6, 8), seed=1)
    distance = torch.arange(6) - torch.arange(6)[:, None]
    for slopes in (alibi_slopes(4), nape_slopes(4)):
        bias = slopes[:, None, None] * distance.tril()
        found = entmax_attention_weights(query, key, alibi_slopes=slopes, is_causal=True)
        expected = entmax_attention_weights(query, key, attn_mask=bias, is_causal=True)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("slopes", [alibi_slopes, nape_slopes])
def test_there_is_at_least_one_head(slopes):
    with pytest.raises(ValueError, match="at least 1; got 0"):
        slopes(0)
