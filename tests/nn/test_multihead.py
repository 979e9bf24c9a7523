"""Multi-head attention against PyTorch's own, which it equals at alpha = 1."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from torch import nn

from adasparse import entmax_attention
from adasparse.kernels import cpu
from adasparse.nn import LearnedAlpha, LengthScale, MultiheadAttention, alibi_slopes
from adasparse.nn import multihead as module_under_test
from support.helpers import randn

E, H, B, Q, K = 12, 3, 4, 5, 7


def _pair(alpha=1.0, **options):
    """A module of PyTorch and ours with its weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(E, H, **options)
    for parameter in theirs.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    ours = MultiheadAttention(E, H, alpha=alpha, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def _inputs(kind="cross", *, batch_first=False, kdim=E, vdim=E, batched=True):
    def tensor(length, size, seed):
        shape = (B, length, size) if batch_first else (length, B, size)
        return randn(shape if batched else (length, size), seed=seed).requires_grad_()

    query = tensor(Q, E, 1)
    if kind == "self":
        return query, query, query
    key = tensor(K, kdim, 2)
    return query, key, key if kind == "cross" else tensor(K, vdim, 3)


def _added(mask):
    return torch.zeros(mask.shape).masked_fill(mask, -math.inf)


def _run(module, inputs, **options):
    """Output, weights and the gradients with respect to inputs and parameters."""
    output, weights = module(*inputs, **options)
    total = (output * randn(tuple(output.shape), seed=7)).sum()
    if weights is not None:
        total = total + (weights * randn(tuple(weights.shape), seed=8)).sum()
    leaves = list({id(x): x for x in inputs}.values())
    leaves += [x for name, x in sorted(module.named_parameters()) if "alpha" not in name]
    return output, weights, torch.autograd.grad(total, leaves)


def _assert_same(theirs, ours, inputs, **options):
    expected = _run(theirs, inputs, **options)
    found = _run(ours, inputs, **options)
    near = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found[0], expected[0], **near)
    assert (found[1] is None) == (expected[1] is None)
    if expected[1] is not None:
        torch.testing.assert_close(found[1], expected[1], **near)
    for x, y in zip(found[2], expected[2], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=2e-5)


WEIGHTS = [
    {"need_weights": False},
    {"need_weights": True},
    {"need_weights": True, "average_attn_weights": False},
]


@pytest.mark.parametrize("weights", WEIGHTS, ids=["fused", "mean", "each"])
@pytest.mark.parametrize("kind", ["self", "cross", "three"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"add_bias_kv": True, "add_zero_attn": True, "bias": False},
    ],
    ids=str,
)
def test_equals_pytorch_at_alpha_1(options, batched, batch_first, kind, weights):
    theirs, ours = _pair(batch_first=batch_first, **options)
    inputs = _inputs(kind, batch_first=batch_first, batched=batched)
    _assert_same(theirs, ours, inputs, **weights)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["fused", "mean", "each"])
@pytest.mark.parametrize("sizes", [{"kdim": 6, "vdim": 10}, {"kdim": 6}, {"vdim": 10}], ids=str)
def test_equals_pytorch_with_other_sizes_of_keys_and_values(sizes, weights):
    theirs, ours = _pair(**sizes)
    _assert_same(theirs, ours, _inputs("three", **sizes), **weights)


PADDINGS = {
    "none": None,
    "right": torch.arange(K) >= torch.tensor([7, 5, 1, 6])[:, None],
    "left": torch.arange(K) < torch.tensor([0, 2, 6, 1])[:, None],
}


@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("weights", WEIGHTS, ids=["fused", "mean", "each"])
@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("padding", list(PADDINGS))
def test_equals_pytorch_with_masks(padding, is_float, rank, weights, extra):
    theirs, ours = _pair(**extra)
    options = dict(weights)
    if PADDINGS[padding] is not None:
        mask = PADDINGS[padding]
        options["key_padding_mask"] = _added(mask) if is_float else mask
    if rank:
        mask = randn((Q, K) if rank == 2 else (B * H, Q, K), seed=5) > 0.5
        mask[..., 0 if padding == "right" else K - 1] = False
        options["attn_mask"] = _added(mask) + randn((Q, K), seed=6) if is_float else mask
    _assert_same(theirs, ours, _inputs(), **options)


def test_unbatched_masks():
    theirs, ours = _pair()
    inputs = _inputs(batched=False)
    for weights in WEIGHTS:
        for padding in (PADDINGS["right"][1], PADDINGS["left"][1]):
            _assert_same(theirs, ours, inputs, key_padding_mask=padding, **weights)
        mask = randn((H, Q, K), seed=5) > 1
        _assert_same(theirs, ours, inputs, attn_mask=mask, **weights)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["fused", "mean", "each"])
@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_causal_hint(padded, is_float, weights):
    theirs, ours = _pair(batch_first=True)
    inputs = _inputs("self", batch_first=True)
    mask = torch.ones(Q, Q, dtype=torch.bool).triu(1)
    mask = _added(mask) if is_float else mask
    options = {"attn_mask": mask, "is_causal": True, **weights}
    if padded:
        padding = torch.arange(Q) >= torch.tensor([5, 3, 1, 4])[:, None]
        options["key_padding_mask"] = _added(padding) if is_float else padding
    _assert_same(theirs, ours, inputs, **options)
    expected, _ = ours(*inputs, **options)
    del options["attn_mask"]
    torch.testing.assert_close(ours(*inputs, **options)[0], expected)


def test_appended_keys_are_seen_by_all_queries_under_the_causal_hint():
    # PyTorch agrees only if weights are needed; without them its first queries miss these keys.
    theirs, ours = _pair(add_bias_kv=True, add_zero_attn=True)
    inputs = _inputs("self")
    mask = torch.ones(Q, Q, dtype=torch.bool).triu(1)
    expected, _ = theirs(*inputs, attn_mask=mask, is_causal=True)
    for need_weights in (False, True):
        found, _ = ours(*inputs, attn_mask=mask, is_causal=True, need_weights=need_weights)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("need_weights", [False, True])
def test_learned_alpha_is_that_of_the_function(need_weights):
    _, ours = _pair(alpha=LearnedAlpha(H, init="spread"), batch_first=True)
    query, key, value = _inputs("three", batch_first=True)
    padding = PADDINGS["right"]
    found, weights = ours(
        query,
        key,
        value,
        key_padding_mask=padding,
        need_weights=need_weights,
        average_attn_weights=False,
    )
    q, k, v = (
        nn.functional.linear(x, weight, bias).unflatten(-1, (H, E // H)).transpose(1, 2)
        for x, weight, bias in zip(
            (query, key, value),
            ours.in_proj_weight.chunk(3),
            ours.in_proj_bias.chunk(3),
            strict=True,
        )
    )
    mask = ~padding[:, None, None]
    expected = entmax_attention(q, k, v, alpha=ours.alpha(), attn_mask=mask)
    expected = ours.out_proj(expected.transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if need_weights:
        assert (weights == 0).float().mean() > 0.3
        torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, Q))
    found.square().sum().backward()
    assert (ours.alpha.alpha_logit.grad != 0).all()


@pytest.mark.parametrize("kind", ["adaptive", "per_head", "ssmax"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_length_scale_knows_padding_and_causality(batch_first, kind):
    scale = LengthScale(H, kind=kind, embed_dim=E if kind == "adaptive" else None)
    with torch.no_grad():
        for seed, parameter in enumerate(scale.parameters()):
            parameter.copy_(randn(tuple(parameter.shape), seed=seed))
    module = MultiheadAttention(E, H, batch_first=batch_first, length_scale=scale)
    length = 3
    x = randn((B, Q, E))
    x = x if batch_first else x.transpose(0, 1)
    short = x[:, :length] if batch_first else x[:length]
    padding = (torch.arange(Q) >= length).expand(B, Q)
    left = padding.flip(1)
    for is_causal, need_weights in itertools.product([False, True], [False, True]):
        options = {"is_causal": is_causal, "need_weights": need_weights}
        expected, _ = module(short, short, short, **options)
        found, _ = module(x, x, x, key_padding_mask=padding, **options)
        found = found[:, :length] if batch_first else found[:length]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    # Padding in front is left out of the count as well
    dim = 1 if batch_first else 0
    triangle = torch.ones(Q, Q, dtype=torch.bool).triu(1)
    rolled = x.roll(Q - length, dim)
    found, _ = module(rolled, rolled, rolled, key_padding_mask=left, attn_mask=triangle)
    found = found[:, -length:] if batch_first else found[-length:]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    one = x[0] if batch_first else x[:, 0]
    found, _ = module(one, one, one, is_causal=True)
    batched, _ = module(x, x, x, is_causal=True)
    batched = batched[0] if batch_first else batched[:, 0]
    torch.testing.assert_close(found, batched, rtol=1e-5, atol=1e-5)


def test_slopes_reach_attention():
    slopes = alibi_slopes(H)
    module = MultiheadAttention(E, H, alpha=1.0, alibi_slopes=slopes)
    x = randn((Q, B, E))
    bias = -(torch.arange(Q) - torch.arange(Q)[:, None]).abs() * slopes[:, None, None]
    plain, _ = _pair()
    plain.load_state_dict(module.state_dict())
    expected = plain(x, x, x, attn_mask=bias.repeat(B, 1, 1))
    for found, want in zip(module(x, x, x), expected, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)


def test_queries_that_see_no_key_get_the_bias_alone():
    _, ours = _pair(alpha=1.5, batch_first=True)
    inputs = _inputs("cross", batch_first=True)
    padding = torch.tensor([True, False, False, False])[:, None].expand(B, K)
    for mask, need_weights in itertools.product((padding, _added(padding)), (False, True)):
        output, _ = ours(*inputs, key_padding_mask=mask, need_weights=need_weights)
        torch.testing.assert_close(output[0], ours.out_proj.bias.expand(Q, E))
        gradient = torch.autograd.grad(output.sum(), inputs[0])[0]
        assert gradient.isfinite().all()
        assert (gradient[0] == 0).all()


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_acts_in_training_only(need_weights):
    torch.manual_seed(0)
    module = MultiheadAttention(E, H, dropout=0.5)
    inputs = _inputs()
    first, weights = module(*inputs, need_weights=need_weights, average_attn_weights=False)
    second, _ = module(*inputs, need_weights=need_weights)
    assert not torch.allclose(first, second)
    if need_weights:
        assert not torch.allclose(weights.sum(-1), torch.ones(B, H, Q))
    module.eval()
    assert torch.equal(*(module(*inputs, need_weights=need_weights)[0] for _ in range(2)))


def test_padding_at_the_end_takes_the_short_way(monkeypatch):
    calls = []

    def record(*arguments, **options):
        calls.append(options)
        return entmax_attention(*arguments, **options)

    monkeypatch.setattr(module_under_test, "entmax_attention", record)
    module = MultiheadAttention(E, H)
    inputs, padding = _inputs(), PADDINGS["right"]
    for mask in (padding, _added(padding)):
        module(*inputs, key_padding_mask=mask, need_weights=False)
    module(*inputs, key_padding_mask=PADDINGS["left"], need_weights=False)
    module(*_inputs("self"), attn_mask=torch.ones(Q, Q), is_causal=True, need_weights=False)
    module(*inputs)
    assert len(calls) == 4
    for call in calls[:2]:
        assert call["key_lengths"].tolist() == [7, 5, 1, 6]
        assert call["attn_mask"] is None
    assert calls[2]["key_lengths"] is None
    assert calls[3]["is_causal"]
    assert calls[3]["attn_mask"] is None


def test_checkpoints_of_pytorch_load_strictly_and_leave_alpha():
    for options in ({}, {"kdim": 6, "vdim": 10}, {"bias": False}, {"add_bias_kv": True}):
        theirs = nn.Sequential(nn.MultiheadAttention(E, H, **options), nn.Linear(2, 2))
        scale = LengthScale(H, kind="ssmax")
        ours = MultiheadAttention(
            E, H, **options, alpha=LearnedAlpha(H, init="spread"), length_scale=scale
        )
        before = ours.alpha().detach()
        model = nn.Sequential(ours, nn.Linear(2, 2))
        for assign in (False, True):
            state = theirs.state_dict()
            model.load_state_dict(state, assign=assign)
            assert set(state) == set(theirs.state_dict())
        for name, x in theirs.state_dict().items():
            assert torch.equal(model.state_dict()[name], x)
        assert torch.equal(ours.alpha(), before)
        assert isinstance(ours.alpha.alpha_logit, nn.Parameter)


def test_own_checkpoints_are_checked_in_full():
    ours = MultiheadAttention(E, H, length_scale=LengthScale(H, kind="ssmax"))
    state = ours.state_dict()
    assert set(state) == {
        "in_proj_weight",
        "in_proj_bias",
        "out_proj.weight",
        "out_proj.bias",
        "alpha.alpha_logit",
        "length_scale.factor",
    }
    other = MultiheadAttention(E, H, length_scale=LengthScale(H, kind="ssmax"))
    other.load_state_dict(state)
    x = randn((Q, B, E))
    assert torch.equal(other(x, x, x)[0], ours(x, x, x)[0])
    del state["alpha.alpha_logit"]
    with pytest.raises(RuntimeError, match=r"Missing key.*alpha\.alpha_logit"):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*alpha\.alpha_logit"):
        MultiheadAttention(E, H, alpha=1.5).load_state_dict(other.state_dict())


def test_starts_as_pytorch_does():
    for options in ({}, {"kdim": 6, "vdim": 10}, {"add_bias_kv": True}, {"bias": False}):
        torch.manual_seed(3)
        theirs = nn.MultiheadAttention(E, H, **options).state_dict()
        torch.manual_seed(3)
        ours = MultiheadAttention(E, H, **options)
        for name, x in theirs.items():
            assert torch.equal(ours.state_dict()[name], x)
        ours._reset_parameters()
    module = MultiheadAttention(E, H, device="meta", dtype=torch.bfloat16)
    assert {x.device.type for x in module.parameters()} == {"meta"}
    assert module.in_proj_weight.dtype == torch.bfloat16
    assert module.alpha.alpha_logit.dtype == torch.float32


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_as_good_as_that_of_pytorch(dtype, need_weights):
    theirs, ours = _pair()
    inputs = [x.detach() for x in _inputs()]
    expected = theirs(*inputs)[0]
    low = [x.to(dtype) for x in inputs]
    options = {"need_weights": need_weights, "key_padding_mask": torch.zeros(B, K).bool()}
    error = (theirs.to(dtype)(*low, **options)[0] - expected).abs().max()
    found = ours.to(dtype)(*low, **options)[0]
    assert found.dtype == dtype
    assert (found - expected).abs().max() <= 2 * error


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("need_weights", [False, True])
def test_autocast(need_weights, options):
    scale = LengthScale(H, embed_dim=E)
    module = MultiheadAttention(E, H, length_scale=scale, **options)
    inputs = _inputs()
    expected, _ = module(*inputs, need_weights=need_weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = module(*inputs, need_weights=need_weights)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)
    found.float().square().sum().backward()
    assert module.alpha.alpha_logit.grad.isfinite().all()
    assert (module.alpha.alpha_logit.grad != 0).all()


def test_copies_are_equal():
    module = MultiheadAttention(
        E, H, alibi_slopes=alibi_slopes(H), length_scale=LengthScale(H, kind="per_head")
    )
    x = randn((Q, B, E))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x, x, x)[0], module(x, x, x)[0])
    assert "12, 3, dropout=0.0" in repr(module)
    assert "12, 3, alpha=1.5" in repr(MultiheadAttention(E, H, alpha=1.5))


def test_compiles_in_one_piece():
    if not cpu.is_available():
        pytest.skip("plain kernels break the graph")
    torch.manual_seed(0)
    module = MultiheadAttention(E, H, length_scale=LengthScale(H, embed_dim=E))
    x, padding = randn((Q, B, E)), PADDINGS["right"][:, :Q]
    options = {"key_padding_mask": padding, "need_weights": False}
    expected = module(x, x, x, **options)[0]
    found = torch.compile(module, fullgraph=True, backend="aot_eager")(x, x, x, **options)[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    found.square().sum().backward()
    by_alpha = module.alpha.alpha_logit.grad.clone()
    module.zero_grad()
    expected.square().sum().backward()
    torch.testing.assert_close(by_alpha, module.alpha.alpha_logit.grad, rtol=1e-4, atol=1e-5)


def test_empty_batches_and_sequences():
    module = MultiheadAttention(E, H, batch_first=True)
    for shape in ((0, 5, E), (2, 0, E)):
        x = torch.zeros(shape)
        mask = torch.zeros(shape[:2], dtype=torch.bool)
        for need_weights in (False, True):
            output, _ = module(x, x, x, key_padding_mask=mask, need_weights=need_weights)
            assert output.shape == shape


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((10, 3), {}, "multiple of num_heads.*got 10 and 3"),
        ((0, 1), {}, "got 0 and 1"),
        ((12, 3), {"dropout": -0.1}, r"from 0 to 1; got -0\.1"),
        ((12, 3), {"alpha": 0.9}, r"got 0\.9"),
        ((12, 3), {"alpha": LearnedAlpha(4)}, "1 or 3 heads.*got 4"),
        ((12, 3), {"length_scale": LengthScale(4, kind="ssmax")}, "3 heads.*got 4"),
        (
            (12, 3),
            {"alibi_slopes": alibi_slopes(3), "add_zero_attn": True},
            "got add_bias_kv=False and add_zero_attn=True",
        ),
    ],
)
def test_constructor_errors_quote_what_was_given(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        MultiheadAttention(*arguments, **options)


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        ([(Q, 12), (K, B, 12), (K, B, 12)], {}, ValueError, r"2-D.*got \(5, 12\), \(7, 4, 12\)"),
        ([(Q, B, 11), (K, B, 12), (K, B, 12)], {}, ValueError, r"12, 12, 12.*got \(5, 4, 11\)"),
        ([(Q, B, 12), (K, B, 12), (6, B, 12)], {}, ValueError, r"equally long.*\(6, 4, 12\)"),
        ([(Q, 3, 12), (K, B, 12), (K, B, 12)], {}, ValueError, "dimension 1.*got 3 and 4"),
        (
            [(Q, B, 12), (K, B, 12), (K, B, 12)],
            {"key_padding_mask": torch.zeros(K, B).bool()},
            ValueError,
            r"key_padding_mask must have the shape \(4, 7\); got \(7, 4\)",
        ),
        (
            [(Q, B, 12), (K, B, 12), (K, B, 12)],
            {"attn_mask": torch.zeros(B, Q, K)},
            ValueError,
            r"attn_mask must have the shape \(5, 7\) or \(12, 5, 7\); got \(4, 5, 7\)",
        ),
        (
            [(Q, B, 12), (K, B, 12), (K, B, 12)],
            {"attn_mask": torch.zeros(Q, K, dtype=torch.long)},
            TypeError,
            r"attn_mask must be bool.*got torch\.int64",
        ),
    ],
)
def test_errors_quote_what_was_given(shapes, options, error, message):
    module = MultiheadAttention(E, H)
    with pytest.raises(error, match=message):
        module(*(torch.zeros(shape) for shape in shapes), **options)
