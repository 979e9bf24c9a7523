"""Sliding windows of attention."""

import pytest
import torch

from adasparse import entmax_attention, entmax_attention_support, entmax_attention_weights
from support.attention_case import check, tensors
from support.helpers import BACKENDS, randn

WINDOWS = [(0, 0), (3, 0), (2, 5), (None, 1), (4, None), (100, 100)]


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 2.0])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_agrees_with_the_reference(window, alpha):
    x = tensors(q=23, k=19, h=4, g=2)
    check(*x, alpha=alpha, window=window, enable_gqa=True, backends=BACKENDS)


@pytest.mark.parametrize("window", [(5, 0), (7, 9), (30, 3)], ids=str)
def test_goes_along_with_every_other_option(window):
    x = tensors(b=2, h=2, q=130, k=130, d=16)
    options = {
        "alpha": torch.tensor([1.05, 1.6]),
        "attn_mask": randn((2, 1, 130, 130), seed=5),
        "key_lengths": torch.tensor([130, 77]),
        "alibi_slopes": torch.tensor([0.1, 0.0]),
        "dropout_p": 0.2,
    }
    check(*x, window=window, is_causal=True, backends=BACKENDS, **options)


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5])
@pytest.mark.parametrize("n", [300, 1025])
def test_is_the_mask_that_it_stands_for(n, alpha):
    x = tensors(b=1, h=2, q=n, k=n, d=8)
    place = torch.arange(n)
    distance = place.unsqueeze(-1) - place
    mask = (distance <= 40) & (distance >= -3)
    windowed = entmax_attention(*x, alpha=alpha, window=(40, 3))
    torch.testing.assert_close(windowed, entmax_attention(*x, alpha=alpha, attn_mask=mask))
    dense = entmax_attention_weights(*x[:2], alpha=alpha, window=(40, 3))
    assert not dense[..., ~mask].any()
    crow, col, value = entmax_attention_support(*x[:2], alpha=alpha, window=(40, 3))
    sparse = torch.zeros(2 * n, n)
    sparse[torch.arange(2 * n).repeat_interleave(crow.diff()), col] = value
    torch.testing.assert_close(sparse, dense.reshape(2 * n, n))


def test_a_query_beyond_all_windows_gets_zeros():
    x = [t.requires_grad_() for t in tensors(q=20, k=5)]
    output = entmax_attention(*x, window=(2, 0))
    assert not output[:, :, 7:].any()
    output.sum().backward()
    assert not x[0].grad[:, :, 7:].any()


def test_compiles():
    x = tensors(q=16, k=16)
    run = torch.compile(
        lambda *x: entmax_attention(*x, window=(4, 0)), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(run(*x), entmax_attention(*x, window=(4, 0)))


@pytest.mark.parametrize("window", [3, (1,), (-1, 0), (1.5, 0), (True, 0), "ab"], ids=str)
def test_nonsense_is_refused(window):
    with pytest.raises(ValueError, match=r"pair \(left, right\)"):
        entmax_attention(*tensors(), window=window)
