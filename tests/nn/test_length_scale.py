import copy
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import softplus

from adasparse.nn import LengthScale, visible_keys
from support.helpers import randn


def test_visible_keys_without_a_mask():
    assert visible_keys(3, 5).expand(3, 1).flatten().tolist() == [5, 5, 5]
    assert visible_keys(4, 2, is_causal=True).flatten().tolist() == [1, 2, 2, 2]
    lengths = torch.tensor([3, 0, 5])
    assert visible_keys(2, 5, key_lengths=lengths).shape == (3, 1, 1, 1)
    causal = visible_keys(4, 5, is_causal=True, key_lengths=lengths)
    assert causal.shape == (3, 1, 4, 1)
    assert causal[..., 0].squeeze(1).tolist() == [[1, 2, 3, 3], [0, 0, 0, 0], [1, 2, 3, 4]]


@pytest.mark.parametrize("shape", [(4, 6), (1, 6), (2, 1, 1, 6), (2, 3, 4, 6), (4, 1)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "inf", "lowest"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("has_lengths", [False, True])
def test_visible_keys_counts_what_masks_leave(shape, kind, is_causal, has_lengths):
    can_see = randn(shape) > 0
    lengths = torch.tensor([6, 2]) if has_lengths else None
    expected = can_see.expand(2, 3, 4, 6).clone()
    if is_causal:
        expected &= torch.ones(4, 6, dtype=torch.bool).tril()
    if has_lengths:
        expected[1, ..., 2:] = False
    mask = can_see
    if kind != "bool":
        lowest = -math.inf if kind == "inf" else torch.finfo(torch.float32).min
        mask = torch.where(can_see, -3.0, lowest)
    found = visible_keys(4, 6, is_causal=is_causal, key_lengths=lengths, attn_mask=mask)
    assert torch.equal(found.expand(2, 3, 4, 1)[..., 0], expected.sum(-1))


def _explicit(module: LengthScale, x: torch.Tensor, b: int, h: int, i: int, n: int) -> float:
    """The factor of one query by the formula of the paper."""
    if h not in module.heads:
        return 1.0
    row = module.heads.index(h)
    length = math.log(n + 1)
    if module.kind == "ssmax":
        return module.factor[row].item() * length
    if module.kind == "per_head":
        return 1 + module.beta[row].item() * length ** module.gamma[row].item()
    beta = softplus(module.beta_weight[row] @ x[b, i] + module.beta_bias[row])
    gamma = 2 * torch.tanh(module.gamma_weight[row] @ x[b, i] + module.gamma_bias[row])
    return 1 + beta.item() * length ** gamma.item()


@pytest.mark.parametrize("heads", [None, [1], [2, 0], range(1, 3)], ids=str)
@pytest.mark.parametrize("kind", ["adaptive", "per_head", "ssmax"])
def test_factor_follows_the_formula(kind, heads):
    module = LengthScale(3, kind=kind, embed_dim=5 if kind == "adaptive" else None, heads=heads)
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(randn(tuple(parameter.shape), seed=seed))
    x = randn((2, 4, 5), seed=9)
    mask = randn((2, 3, 4, 6), seed=10) > 0
    mask[..., 0] = True
    for visible in (visible_keys(4, 6, is_causal=True), visible_keys(4, 6, attn_mask=mask)):
        found = module(visible, x if kind == "adaptive" else None).expand(2, 3, 4, 1)
        counts = visible.expand(2, 3, 4, 1)
        for b in range(2):
            for h in range(3):
                for i in range(4):
                    expected = _explicit(module, x, b, h, i, counts[b, h, i, 0].item())
                    assert found[b, h, i, 0].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["adaptive", "per_head"])
def test_starts_close_to_no_scale_with_every_gradient_alive(kind):
    module = LengthScale(2, kind=kind, embed_dim=3 if kind == "adaptive" else None)
    factor = module(visible_keys(50, 50, is_causal=True), randn((1, 50, 3)))
    torch.testing.assert_close(factor, torch.full_like(factor, 1.05))
    factor.square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).all(), name


def test_ssmax_starts_at_the_logarithm():
    factor = LengthScale(2, kind="ssmax")(visible_keys(1, 99))
    torch.testing.assert_close(factor, torch.full((2, 1, 1), math.log(100)))


@pytest.mark.parametrize("kind", ["adaptive", "per_head", "ssmax"])
def test_gradients(kind):
    size = 3 if kind == "adaptive" else None
    module = LengthScale(2, kind=kind, embed_dim=size, heads=[1], dtype=torch.float64)
    names = [name for name, _ in module.named_parameters()]
    values = [
        randn(tuple(x.shape), dtype=torch.float64, seed=i).requires_grad_()
        for i, x in enumerate(module.parameters())
    ]
    x = randn((2, 4, 3), dtype=torch.float64, seed=8).requires_grad_(kind == "adaptive")
    visible = visible_keys(4, 4, is_causal=True)

    def run(x, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(module, parameters, (visible, x))

    assert gradcheck(run, (x, *values))


def test_queries_without_keys_get_a_finite_factor():
    for kind in ("per_head", "ssmax"):
        module = LengthScale(1, kind=kind)
        if kind == "per_head":
            torch.nn.init.constant_(module.gamma, -2.0)
        factor = module(torch.tensor([[0], [1]]))
        assert torch.equal(factor[:, 0], factor[:, 1])
        factor.sum().backward()
        assert all(x.grad.isfinite().all() for x in module.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["adaptive", "per_head", "ssmax"])
def test_half_precision_computes_in_float32(kind, dtype):
    module = LengthScale(2, kind=kind, embed_dim=8 if kind == "adaptive" else None)
    x, visible = randn((1, 5, 8)), visible_keys(5, 5000, is_causal=False)
    expected = module(visible, x)
    low = copy.deepcopy(module).to(dtype)
    found = low(visible, x.to(dtype))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=0)
    query = randn((1, 2, 5, 4)).to(dtype)
    assert low.scale_query(query, 5000, layer_input=x.to(dtype)).dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(visible, x).dtype == torch.float32


def test_scale_query_counts_and_multiplies():
    module = LengthScale(3, kind="ssmax", heads=[2])
    query, lengths = randn((2, 3, 4, 5)), torch.tensor([4, 1])
    found = module.scale_query(query, 4, is_causal=True, key_lengths=lengths)
    assert torch.equal(found[:, :2], query[:, :2])
    counts = torch.tensor([[1, 2, 3, 4], [1, 1, 1, 1]])
    torch.testing.assert_close(found[:, 2], query[:, 2] * counts[..., None].log1p())


def test_code_that_initializes_models_leaves_it_alone():
    # Hugging Face draws the weights of every nn.Linear it does not find in a checkpoint
    module = LengthScale(2, embed_dim=4)
    assert not [x for x in module.modules() if isinstance(x, torch.nn.Linear)]


def test_repr_tells_the_settings():
    assert "4, kind='adaptive', embed_dim=8" in repr(LengthScale(4, embed_dim=8))
    text = repr(LengthScale(4, kind="ssmax", heads=range(2, 4)))
    assert "4, kind='ssmax', heads=(2, 3)" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "entropy"}, "got 'entropy'"),
        ({}, "got kind='adaptive' and embed_dim=None"),
        ({"kind": "ssmax", "embed_dim": 8}, "got kind='ssmax' and embed_dim=8"),
        ({"kind": "ssmax", "heads": [4]}, r"0 to 3, each once; got \(4,\)"),
        ({"kind": "ssmax", "heads": []}, r"got \(\)"),
        ({"kind": "ssmax", "heads": [1, 1]}, r"got \(1, 1\)"),
    ],
)
def test_errors_quote_what_was_given(options, message):
    with pytest.raises(ValueError, match=message):
        LengthScale(4, **options)


def test_layer_input_is_checked():
    module = LengthScale(2, embed_dim=8)
    with pytest.raises(ValueError, match=r"\(b, q, 8\); got None"):
        module(visible_keys(3, 3))
    with pytest.raises(ValueError, match=r"\(b, q, 8\); got \(1, 3, 7\)"):
        module(visible_keys(3, 3), randn((1, 3, 7)))
    with pytest.raises(ValueError, match="at least 1; got 0"):
        LengthScale(0, kind="ssmax")


def test_beta_and_gamma_are_those_of_the_factor():
    x, visible = randn((2, 5, 8)), visible_keys(5, 5, is_causal=True)
    for kind, size in (("adaptive", 8), ("per_head", None)):
        module = LengthScale(3, kind=kind, embed_dim=size, heads=[0, 2])
        for parameter in module.parameters():
            parameter.data.copy_(randn(tuple(parameter.shape), seed=4))
        beta, gamma = module.beta_and_gamma(x)
        factor = 1 + beta * (visible + 1).log() ** gamma
        torch.testing.assert_close(module(visible, x)[..., [0, 2], :, :], factor)
    with pytest.raises(ValueError, match='got kind="ssmax"'):
        LengthScale(3, kind="ssmax").beta_and_gamma()


@pytest.mark.parametrize("window", [(0, 0), (2, 1), (None, 2), (3, None)], ids=str)
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("lengths", [None, torch.tensor([9, 4])], ids=["whole", "padded"])
def test_keys_of_a_window_are_counted(window, is_causal, lengths):
    everything = torch.ones(7, 9, dtype=torch.bool)
    options = {"is_causal": is_causal, "key_lengths": lengths}
    i, j = torch.arange(7).unsqueeze(-1), torch.arange(9)
    left, right = window
    mask = (j >= i - (99 if left is None else left)) & (j <= i + (99 if right is None else right))
    expected = visible_keys(7, 9, attn_mask=mask, **options)
    assert torch.equal(visible_keys(7, 9, window=window, **options), expected)
    assert torch.equal(visible_keys(7, 9, window=window, attn_mask=everything, **options), expected)
