import math

import pytest
import torch

from adasparse.nn.masks import padding_lengths, translate_masks
from support.helpers import randn

PADDING = torch.arange(6) >= torch.tensor([6, 4, 0])[:, None]


def _added(mask):
    return torch.zeros(mask.shape).masked_fill(mask, -math.inf)


@pytest.mark.parametrize("mask", [PADDING, _added(PADDING)], ids=["bool", "float"])
def test_padding_at_the_end_is_told_by_lengths(mask):
    assert padding_lengths(mask).tolist() == [6, 4, 0]


@pytest.mark.parametrize(
    "mask",
    [
        PADDING.flip(1),
        _added(PADDING.flip(1)),
        _added(PADDING) + 1,
        _added(PADDING).masked_fill(PADDING, -1e9),
        _added(PADDING).masked_fill(PADDING, math.nan),
        _added(PADDING).requires_grad_(),
        PADDING.to("meta"),
    ],
    ids=["left", "left added", "bias", "finite", "nan", "learned", "elsewhere"],
)
def test_masks_that_say_more_stay_masks(mask):
    assert padding_lengths(mask) is None


def test_no_keys_and_no_sequences():
    assert padding_lengths(torch.zeros(2, 0, dtype=torch.bool)).tolist() == [0, 0]
    assert padding_lengths(torch.zeros(0, 3, dtype=torch.bool)).tolist() == []


def _can_see(visibility, sizes):
    """The bias that all of it amounts to."""
    bias = torch.zeros(sizes)
    if visibility["attn_mask"] is not None:
        mask = visibility["attn_mask"]
        bias = bias + (_added(~mask) if mask.dtype == torch.bool else mask)
    if visibility["key_lengths"] is not None:
        lengths = visibility["key_lengths"][:, None, None, None]
        bias = bias.masked_fill(torch.arange(sizes[-1]) >= lengths, -math.inf)
    if visibility["is_causal"]:
        bias = bias + _added(~torch.ones(sizes[2:], dtype=torch.bool).tril())
    return bias


@pytest.mark.parametrize("num_extra_keys", [0, 2])
@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("padding", ["none", "right", "left", "right added", "left added"])
def test_all_masks_together(padding, is_float, rank, num_extra_keys):
    b, h, q, k = sizes = (3, 2, 4, 6)
    attn_mask = None
    if rank:
        left_out = randn((q, k) if rank == 2 else (b * h, q, k)) > 1
        attn_mask = _added(left_out) + randn((q, k), seed=1) if is_float else left_out
    key_padding_mask = None
    if padding != "none":
        key_padding_mask = PADDING if "right" in padding else PADDING.flip(1)
        key_padding_mask = _added(key_padding_mask) if "added" in padding else key_padding_mask
    found = translate_masks(
        key_padding_mask,
        attn_mask,
        is_causal=False,
        sizes=sizes,
        num_extra_keys=num_extra_keys,
        device=torch.device("cpu"),
    )
    expected = torch.zeros(b, h, q, k + num_extra_keys)
    if attn_mask is not None:
        added = attn_mask if is_float else _added(attn_mask)
        expected[..., :k] += added if rank == 2 else added.reshape(b, h, q, k)
    if padding != "none":
        left_out = PADDING if "right" in padding else PADDING.flip(1)
        expected[..., :k] += _added(left_out)[:, None, None]
    assert torch.equal(_can_see(found, (b, h, q, k + num_extra_keys)), expected)
    assert (found["key_lengths"] is not None) == ("right" in padding and not num_extra_keys)


@pytest.mark.parametrize("num_extra_keys", [0, 1])
def test_causal_attention_reads_no_mask(num_extra_keys):
    found = translate_masks(
        PADDING,
        torch.ones(6, 6, dtype=torch.bool),
        is_causal=True,
        sizes=(3, 2, 6, 6),
        num_extra_keys=num_extra_keys,
        device=torch.device("cpu"),
    )
    expected = torch.zeros(3, 2, 6, 6 + num_extra_keys)
    expected[..., :6] += _added(torch.ones(6, 6, dtype=torch.bool).triu(1))
    expected[..., :6] += _added(PADDING)[:, None, None]
    assert torch.equal(_can_see(found, expected.shape), expected)
    assert found["is_causal"] == (num_extra_keys == 0)
