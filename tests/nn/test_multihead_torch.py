"""Conventions of torch.nn.MultiheadAttention that other code relies on."""

import pytest
import torch
from torch import nn
from torch.nn.functional import multi_head_attention_forward

from adasparse.nn import MultiheadAttention
from support.helpers import randn


@pytest.mark.parametrize("sizes", [{}, {"kdim": 6, "vdim": 6}, {"vdim": 6}], ids=str)
def test_it_says_which_weights_it_has(sizes):
    ours, theirs = MultiheadAttention(8, 4, **sizes), nn.MultiheadAttention(8, 4, **sizes)
    assert ours._qkv_same_embed_dim == theirs._qkv_same_embed_dim
    assert ours._qkv_same_embed_dim == (ours.in_proj_weight is not None)


def test_its_attributes_serve_the_function():
    module = MultiheadAttention(8, 4, alpha=1.0)
    x = randn((5, 2, 8))
    output, weights = multi_head_attention_forward(
        x,
        x,
        x,
        8,
        4,
        module.in_proj_weight,
        module.in_proj_bias,
        module.bias_k,
        module.bias_v,
        module.add_zero_attn,
        module.dropout,
        module.out_proj.weight,
        module.out_proj.bias,
        use_separate_proj_weight=not module._qkv_same_embed_dim,
    )
    found = module(x, x, x)
    torch.testing.assert_close(found[0], output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], weights, rtol=1e-5, atol=1e-5)


def test_masks_may_be_given_by_position():
    module, x = MultiheadAttention(8, 4, alpha=1.0), randn((5, 2, 8))
    theirs = nn.MultiheadAttention(8, 4)
    theirs.load_state_dict(module.state_dict())
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    found, expected = (m(x, x, x, padding, False, mask)[0] for m in (module, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [{}, {"kdim": 6, "vdim": 6}], ids=str)
def test_the_bias_may_be_of_another_dtype(sizes):
    theirs = nn.MultiheadAttention(8, 4, dtype=torch.float64, **sizes)
    module = MultiheadAttention(8, 4, dtype=torch.float64, alpha=1.0, **sizes)
    nn.init.uniform_(theirs.in_proj_bias)
    module.load_state_dict(theirs.state_dict())
    half = theirs.in_proj_bias.half()  # PyTorch's module takes it for some inputs only
    theirs.in_proj_bias = nn.Parameter(half.double())
    module.in_proj_bias = nn.Parameter(half)
    x = randn((5, 2, 8), dtype=torch.float64)
    y = randn((3, 2, sizes.get("kdim", 8)), dtype=torch.float64)
    found, expected = (each(x, y, y) for each in (module, theirs))
    assert found[0].dtype == torch.float64
    torch.testing.assert_close(found, expected)


SHAPES = [
    ((4, 4, 4), (4, 4), (4, 4, 4), {}, "to be 3-D but found 2-D and 3-D tensors respectively"),
    ((4, 4, 4), (4, 4, 4), (4, 4), {}, "to be 3-D but found 3-D and 2-D tensors respectively"),
    ((4, 4), (4, 4, 4), (4, 4), {}, "to be 2-D but found 3-D and 2-D tensors respectively"),
    ((4,), (4,), (4,), {}, "unbatched 2D or batched 3D tensor but received 1-D query tensor"),
    (
        (4, 4, 4),
        (4, 4, 4),
        (4, 4, 4),
        {"key_padding_mask": (4,)},
        "expected `key_padding_mask` to be `None` or 2-D but found 1-D tensor instead",
    ),
    (
        (4, 4),
        (4, 4),
        (4, 4),
        {"key_padding_mask": (1, 8)},
        "expected `key_padding_mask` to be `None` or 1-D but found 2-D tensor instead",
    ),
    (
        (4, 4),
        (4, 4),
        (4, 4),
        {"attn_mask": (4,)},
        "expected `attn_mask` to be `None`, 2-D or 3-D but found 1-D tensor instead",
    ),
    (
        (4, 4),
        (4, 4),
        (4, 4),
        {"attn_mask": (5, 4, 4)},
        r"Expected `attn_mask` shape to be \(4, 4, 4\)",
    ),
]


@pytest.mark.parametrize("error", [AssertionError, ValueError])
@pytest.mark.parametrize(("query", "key", "value", "masks", "message"), SHAPES)
def test_shapes_that_do_not_fit_are_told_in_the_same_words(
    query, key, value, masks, message, error
):
    options = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in masks.items()}
    tensors = [torch.zeros(shape) for shape in (query, key, value)]
    for module in (MultiheadAttention(4, 4), nn.MultiheadAttention(4, 4)):
        if error is AssertionError or isinstance(module, MultiheadAttention):
            with pytest.raises(error, match=message):
                module(*tensors, **options)


def test_lora_adapts_it():
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 4, 16, batch_first=True))
    model[1].self_attn = MultiheadAttention(8, 4, batch_first=True)
    x = randn((2, 5, 8))
    expected = model.eval()(x)
    config = peft.LoraConfig(r=2, target_modules=["self_attn"])
    adapted = peft.get_peft_model(model, config).eval()
    torch.testing.assert_close(adapted(x), expected, rtol=1e-5, atol=1e-5)
    adapted.train()(x).square().sum().backward()
    trained = [name for name, p in adapted.named_parameters() if p.grad is not None]
    assert any("lora_B" in name for name in trained)
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_B" in name:
                p.normal_(generator=torch.Generator().manual_seed(0))
        changed = adapted.eval()(x)
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(merged(x), changed, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(changed, expected, atol=1e-3)
