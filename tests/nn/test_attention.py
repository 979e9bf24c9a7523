import copy
import pickle

import pytest
import torch

from adasparse import entmax_attention, entmax_attention_weights
from adasparse.nn import EntmaxAttention, LearnedAlpha, LengthScale, nape_slopes
from support.helpers import randn


def _tensors(h: int = 4, g: int = 4):
    return randn((2, h, 7, 8)), randn((2, g, 9, 8), seed=1), randn((2, g, 9, 8), seed=2)


def test_it_is_the_function_with_parameters_of_its_own():
    query, key, value = _tensors()
    mask, lengths = randn((2, 1, 7, 9), seed=3) > -1, torch.tensor([9, 5])
    slopes = nape_slopes(4)
    module = EntmaxAttention(
        4, alpha=LearnedAlpha(4, init="spread"), scale=0.5, alibi_slopes=slopes, backend="torch"
    )
    options = {"attn_mask": mask, "key_lengths": lengths, "is_causal": True}
    own = {"alpha": module.alpha(), "scale": 0.5, "alibi_slopes": slopes, "backend": "torch"}
    expected = entmax_attention(query, key, value, **options, **own)
    assert torch.equal(module(query, key, value, **options), expected)
    expected = entmax_attention_weights(query, key, **options, **own)
    assert torch.equal(module.weights(query, key, **options), expected)


def test_heads_share_keys_if_asked_to():
    query, key, value = _tensors(g=2)
    module = EntmaxAttention(4)
    expected = entmax_attention(query, key, value, alpha=1.5, enable_gqa=True)
    torch.testing.assert_close(module(query, key, value, enable_gqa=True), expected)
    assert module.weights(query, key, enable_gqa=True).shape == (2, 4, 7, 9)


@pytest.mark.parametrize("kind", ["adaptive", "per_head", "ssmax"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"key_lengths": True}, {"mask": 1}])
def test_length_scale_multiplies_the_query(kind, options):
    query, key, value = _tensors()
    x = randn((2, 7, 6), seed=4)
    given = {"is_causal": "is_causal" in options}
    if "key_lengths" in options:
        given["key_lengths"] = torch.tensor([9, 3])
    if "mask" in options:
        given["attn_mask"] = randn((7, 9), seed=5) > 0
    scale = LengthScale(4, kind=kind, embed_dim=6 if kind == "adaptive" else None, heads=[1, 3])
    with torch.no_grad():
        for seed, parameter in enumerate(scale.parameters()):
            parameter.copy_(randn(tuple(parameter.shape), seed=seed))
    module = EntmaxAttention(4, alpha=1.5, length_scale=scale)
    scaled = scale.scale_query(query, 9, layer_input=x, **given)
    assert not torch.equal(scaled[:, 1], query[:, 1])
    expected = entmax_attention(scaled, key, value, alpha=1.5, **given)
    torch.testing.assert_close(module(query, key, value, layer_input=x, **given), expected)
    weights = module.weights(query, key, layer_input=x, **given)
    torch.testing.assert_close(weights @ value, expected)


def test_padding_does_not_count_as_length():
    query, key, value = _tensors()
    module = EntmaxAttention(4, length_scale=LengthScale(4, kind="ssmax"))
    short = module(query, key[..., :5, :], value[..., :5, :])
    lengths = torch.tensor([5, 5])
    torch.testing.assert_close(module(query, key, value, key_lengths=lengths), short)
    mask = torch.arange(9) < 5
    torch.testing.assert_close(module(query, key, value, attn_mask=mask), short)


def test_everything_gets_gradients():
    query, key, value = (x.requires_grad_() for x in _tensors())
    module = EntmaxAttention(4, length_scale=LengthScale(4, kind="per_head"))
    module(query, key, value, is_causal=True).square().sum().backward()
    for name, x in module.named_parameters():
        assert x.grad.isfinite().all(), name
        assert (x.grad != 0).any(), name
    assert set(dict(module.named_parameters())) == {
        "alpha.alpha_logit",
        "length_scale.beta",
        "length_scale.gamma",
    }


def test_dropout_acts_in_training_only():
    query, key, value = _tensors()
    module = EntmaxAttention(4, dropout=0.5)
    expected = entmax_attention(query, key, value)
    assert not torch.allclose(module(query, key, value), expected)
    torch.testing.assert_close(module.weights(query, key).sum(-1), torch.ones(2, 4, 7))
    torch.testing.assert_close(module.eval()(query, key, value), expected)


def test_one_alpha_serves_all_heads_and_two_modules():
    query, key, value = _tensors()
    alpha = LearnedAlpha(1, init=1.3)
    first, second = EntmaxAttention(4, alpha=alpha), EntmaxAttention(2, alpha=alpha)
    torch.testing.assert_close(
        first(query, key, value), entmax_attention(query, key, value, alpha=1.3)
    )
    assert next(first.parameters()) is next(second.parameters())


def test_fixed_alpha_is_no_parameter():
    module = EntmaxAttention(4, alpha=1)
    assert not module.state_dict()
    query, key, value = _tensors()
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(module(query, key, value), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype):
    query, key, value = _tensors()
    module = EntmaxAttention(4, length_scale=LengthScale(4, kind="per_head"))
    expected = module(query, key, value)
    low = copy.deepcopy(module).to(dtype)
    found = low(*(x.to(dtype) for x in (query, key, value)))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(query, key, value)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)


def test_copies_are_equal():
    query, key, value = _tensors()
    module = EntmaxAttention(
        4, alibi_slopes=nape_slopes(4), length_scale=LengthScale(4, kind="ssmax")
    )
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(query, key, value), module(query, key, value))
    assert "4, dropout=0.0" in repr(module)
    assert "4, alpha=1.5, dropout=0.1" in repr(EntmaxAttention(4, alpha=1.5, dropout=0.1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": 0.5}, ValueError, r"got 0\.5"),
        ({"alpha": "learned"}, TypeError, "got str"),
        ({"alpha": LearnedAlpha(3)}, ValueError, "1 or 4 heads, as many as the attention; got 3"),
        ({"dropout": 1.5}, ValueError, r"from 0 to 1; got 1\.5"),
        ({"length_scale": LengthScale(2, kind="ssmax")}, ValueError, "4 heads.*; got 2"),
    ],
)
def test_errors_quote_what_was_given(options, error, message):
    with pytest.raises(error, match=message):
        EntmaxAttention(4, **options)
