"""Layers of PyTorch with our attention inside: never softmax by way of a fast path."""

import copy

import pytest
import torch
from torch import nn

from adasparse.nn import LearnedAlpha, MultiheadAttention
from support.helpers import randn

E, H, B, N = 16, 4, 3, 7
PADDING = torch.arange(N) >= torch.tensor([7, 4, 2])[:, None]


def _encoder_layer(alpha, *, norm_first=False, batch_first=True):
    torch.manual_seed(0)
    options = {"batch_first": batch_first, "norm_first": norm_first}
    theirs = nn.TransformerEncoderLayer(E, H, 32, dropout=0.0, **options)
    ours = copy.deepcopy(theirs)
    ours.self_attn = MultiheadAttention(E, H, batch_first=batch_first, alpha=alpha)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def _decoder_layer(alpha):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(E, H, 32, dropout=0.0, batch_first=True)
    ours = copy.deepcopy(theirs)
    ours.self_attn = MultiheadAttention(E, H, batch_first=True, alpha=alpha)
    ours.multihead_attn = MultiheadAttention(E, H, batch_first=True, alpha=alpha)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


MASKS = [
    {},
    {"src_key_padding_mask": PADDING},
    {"src_mask": torch.ones(N, N, dtype=torch.bool).triu(1), "is_causal": True},
]


@pytest.mark.parametrize("options", MASKS, ids=["none", "padding", "causal"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
def test_encoder_layer_equals_pytorch_at_alpha_1(mode, batch_first, norm_first, options):
    theirs, ours = _encoder_layer(1.0, norm_first=norm_first, batch_first=batch_first)
    x = randn((B, N, E) if batch_first else (N, B, E))
    for layer in (theirs, ours):
        layer.train(mode == "train")
    with torch.set_grad_enabled(mode != "no_grad"):
        found, expected = ours(x, **options), theirs(x, **options)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", MASKS, ids=["none", "padding", "causal"])
@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_inference_does_not_fall_back_to_softmax(grad, options):
    theirs, ours = _encoder_layer(2.0)
    ours.eval()
    assert torch.backends.mha.get_fastpath_enabled()
    x = randn((B, N, E)) * 3
    expected = ours(x.clone().requires_grad_(), **options).detach()
    with grad():
        found = ours(x, **options)
        softmax = theirs.eval()(x, **options)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, softmax, atol=1e-3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("alpha", [1.0, None])
@pytest.mark.parametrize("mode", ["train", "no_grad"])
def test_encoder_of_such_layers(mode, alpha, is_nested):
    theirs, ours = _encoder_layer(alpha)
    encoder = nn.TransformerEncoder(ours, 2, enable_nested_tensor=is_nested)
    assert encoder.layers[0].self_attn.alpha is not encoder.layers[1].self_attn.alpha or alpha
    expected = nn.TransformerEncoder(theirs, 2, enable_nested_tensor=False)
    x = randn((B, N, E))
    for module in (encoder, expected):
        module.train(mode == "train")
    with torch.set_grad_enabled(mode == "train"):
        found = encoder(x, src_key_padding_mask=PADDING)
        wanted = expected(x, src_key_padding_mask=PADDING)
    if alpha == 1.0:
        keep = ~PADDING[..., None]
        torch.testing.assert_close(found * keep, wanted * keep, rtol=1e-5, atol=1e-5)
    elif mode == "train":
        found.square().sum().backward()
        for layer in encoder.layers:
            assert (layer.self_attn.alpha.alpha_logit.grad != 0).all()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_encoder_that_was_built_before_its_attention_was_replaced():
    # It has made up its mind to turn padding into nested tensors, which then reach us.
    theirs, ours = _encoder_layer(1.5)
    encoder = nn.TransformerEncoder(theirs, 2)
    for layer in encoder.layers:
        layer.self_attn = copy.deepcopy(ours.self_attn)
    assert encoder.use_nested_tensor
    encoder.eval()
    x = randn((B, N, E))
    expected = encoder(x, src_key_padding_mask=PADDING).detach()
    with torch.no_grad():
        found = encoder(x, src_key_padding_mask=PADDING)
    keep = ~PADDING[..., None]
    torch.testing.assert_close(found * keep, expected * keep, rtol=1e-5, atol=1e-5)
    assert (found * ~keep == 0).all()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_attended_to_one_by_one(layout):
    module = MultiheadAttention(E, H, batch_first=True, add_bias_kv=True, add_zero_attn=True)
    queries, keys = [randn((3, E)), randn((5, E))], [randn((4, E), seed=1), randn((2, E), seed=2)]
    query, key = (torch.nested.nested_tensor(x, layout=layout) for x in (queries, keys))
    output, _ = module(query, key, key)
    assert output.is_nested
    assert output.layout == layout
    for found, q, k in zip(output.unbind(), queries, keys, strict=True):
        torch.testing.assert_close(found, module(q, k, k)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_are_taken_without_masks():
    module = MultiheadAttention(E, H, batch_first=True)
    nested = torch.nested.nested_tensor([randn((3, E)), randn((5, E))])
    output, weights = module(nested, nested, nested)
    assert [len(x) for x in output.unbind()] == [3, 5]
    assert weights.shape == (2, 5, 5)
    with pytest.raises(ValueError, match=r"got batch_first=True, another key and value"):
        module(nested, randn((2, 5, E)), nested)
    with pytest.raises(ValueError, match="a nested key and value, and a mask"):
        module(nested, nested, nested, key_padding_mask=torch.zeros(2, 5).bool())
    with pytest.raises(ValueError, match="got batch_first=False"):
        MultiheadAttention(E, H)(nested, nested, nested)
    empty = torch.nested.nested_tensor([])
    with pytest.raises(AssertionError, match="received 1-D query tensor"):
        module(empty, empty, empty)


@pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
def test_decoder_layer_equals_pytorch_at_alpha_1(mode):
    theirs, ours = _decoder_layer(1.0)
    x, memory = randn((B, 5, E)), randn((B, N, E), seed=1)
    options = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(5),
        "tgt_is_causal": True,
        "memory_key_padding_mask": PADDING,
    }
    for layer in (theirs, ours):
        layer.train(mode == "train")
    with torch.set_grad_enabled(mode != "no_grad"):
        found, expected = ours(x, memory, **options), theirs(x, memory, **options)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_decoder_learns_alpha_in_both_attentions():
    _, layer = _decoder_layer(LearnedAlpha(H, init="spread"))
    decoder = nn.TransformerDecoder(layer, 2)
    x, memory = randn((B, 5, E)), randn((B, N, E), seed=1)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    output = decoder(x, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=PADDING)
    output.square().sum().backward()
    found = {name: x for name, x in decoder.named_parameters() if "alpha" in name}
    assert len(found) == 2  # One for both attentions of a layer, as they were given the same
    for name, x in found.items():
        assert x.grad.isfinite().all(), name
        assert (x.grad != 0).all(), name
