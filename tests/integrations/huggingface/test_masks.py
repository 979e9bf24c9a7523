"""Masks say what they hold in words wherever words will do, and never anything else."""

from unittest import mock

import pytest
import torch
from transformers import masking_utils

from adasparse.integrations import calls
from adasparse.integrations.huggingface import SparsityConfig, sparsify
from adasparse.integrations.huggingface.attention import watching
from adasparse.integrations.huggingface.masks import entmax_mask, read_note
from support.architectures import ARCHITECTURES, inputs_for, padding_mask, real_positions, tokens
from support.dense_oracle import DenseOracle


def calls_of(name, **options):
    """Run the architecture; return the calls of attention by kind."""
    model = ARCHITECTURES[name].build()
    report = sparsify(model)
    names = {module: key for key, module in model.named_modules()}
    seen = []
    with watching(seen.append):
        model(**inputs_for(name, **options))
    return [(report.changed[names[call.module]].split(",")[0], call) for call in seen]


@pytest.mark.parametrize("padding", [None, "right"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_mask_is_read_where_padding_comes_last(name, padding):
    if name == "vit" and padding is not None:
        pytest.skip("images have no padding")
    has_window = name in ("gemma2", "gemma3", "modernbert")
    calls = calls_of(name, padding=padding)
    assert all(call.mask is None for _, call in calls if name != "t5")
    # Every other layer of these models has a window.
    assert sum(call.window is not None for _, call in calls) == (1 if has_window else 0)
    for kind, call in calls:
        assert call.is_causal == (kind == "decoder")
        has_padding = padding is not None and not (name == "whisper" and kind != "decoder")
        # Gemma 2 does not run with SDPA, so that its masks are always tensors.
        is_explicit = call.window is not None or name == "gemma2"
        assert (call.key_lengths is not None) == (has_padding or is_explicit)
        if name == "t5":  # the position bias alone, not one copy per sequence
            assert call.mask is None or call.mask.shape[0] == 1


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_other_padding_is_a_mask(name):
    for _, call in calls_of(name, padding="left"):
        assert call.mask is not None
        assert call.key_lengths is None


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "bart"])
def test_weights_are_built_only_when_asked_for(name):
    model = ARCHITECTURES[name].build()
    report = sparsify(model)
    inputs = inputs_for(name, padding="right")
    with (
        mock.patch.object(calls, "entmax_attention", wraps=calls.entmax_attention) as fused,
        mock.patch.object(calls, "attention_weights", wraps=calls.attention_weights) as weights,
    ):
        model(**inputs)
        assert fused.call_count == len(report.changed)
        assert weights.call_count == 0
        model(**inputs, output_attentions=True)
        assert weights.call_count == len(report.changed)


def note_and_mask(q, k, function, padding, **options):
    """Build one mask with everything noted, and the same without our hand in it."""
    options = {"mask_function": function, "attention_mask": padding, **options}
    batch = len(padding)
    mask = entmax_mask(batch, q, k, **options)
    plain = masking_utils.sdpa_mask(
        batch,
        q,
        k,
        **{**options, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False},
    )
    return mask, plain.expand(batch, 1, q, k)


def in_full(mask, q, k, *, is_causal):
    """What attention makes of a mask."""
    query, key = torch.empty(3, 1, q, 1), torch.empty(3, 1, k, 1)
    i, j = torch.arange(q).unsqueeze(-1), torch.arange(k)
    if mask is None:
        return (j <= i if is_causal and q > 1 else (j >= 0) & (i >= 0)).expand(3, 1, q, k)
    note = read_note(mask, query, key)
    if note is None:
        return mask.expand(3, 1, q, k)
    told = j < note.key_lengths[:, None, None, None]
    told = told & (j <= i) if note.is_causal else told
    if note.window is not None:
        left, right = note.window
        told = told & (j >= i - left) & (j <= i + right)
    told = told.expand(3, 1, q, k)
    assert torch.equal(told, mask.expand(3, 1, q, k))
    return told


@pytest.mark.parametrize("side", ["right", "left", "none", "all of one"])
@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("q", [1, 5, 9])
@pytest.mark.parametrize("window", [None, 3, 99])
@pytest.mark.parametrize("is_causal", [True, False])
def test_notes_say_what_the_mask_holds(is_causal, window, q, offset, side):
    k = q + offset
    padding = padding_mask(3, k, "left" if side == "left" else "right").bool()
    if side == "none":
        padding = torch.ones(3, k, dtype=torch.bool)
    if side == "all of one":
        padding[1] = False
    if is_causal:
        function = masking_utils.causal_mask_function
        if window is not None:
            function = masking_utils.sliding_window_causal_mask_function(window)
    else:
        function = masking_utils.bidirectional_mask_function
        if window is not None:
            function = masking_utils.sliding_window_bidirectional_mask_function(window)
    mask, plain = note_and_mask(
        q,
        k,
        function,
        padding,
        q_offset=offset,
        local_size=window,
        allow_is_causal_skip=is_causal,
        allow_is_bidirectional_skip=not is_causal,
    )
    assert torch.equal(in_full(mask, q, k, is_causal=is_causal), plain)


def test_a_mask_that_was_changed_has_no_note():
    padding = padding_mask(3, 6, "right").bool()
    mask = entmax_mask(3, 6, 6, attention_mask=padding)
    query = torch.empty(3, 1, 6, 1)
    assert read_note(mask, query, query) is not None
    mask[0, 0, 5, 0] = False
    assert read_note(mask, query, query) is None
    assert read_note(mask.clone(), query, query) is None


def test_a_mask_of_the_user_is_taken_as_it_is():
    """A mask of rank 4, which transformers hands on without a look, may be anything."""
    model = ARCHITECTURES["llama"].build()
    sparsify(model, SparsityConfig(init_alpha=1.3))
    oracle = DenseOracle(model)
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(2, 1, 9, 9, generator=generator) < 0.5
    mask |= torch.eye(9, dtype=torch.bool)
    added = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    inputs = {"input_ids": tokens(2, 9)}
    expected = oracle(**inputs, attention_mask=added).logits
    for given in (mask, added):
        actual = model(**inputs, attention_mask=given).logits
        assert (actual - expected).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_rows_that_see_nothing_are_finite(name):
    """Left padding makes such rows; softmax over them is NaN, or uniform over what is masked."""
    model = ARCHITECTURES[name].build()
    sparsify(model)
    inputs = inputs_for(name, padding="left")
    logits = model(**inputs).logits
    logits[real_positions(name, inputs)].sum().backward()
    assert logits.isfinite().all()
    assert all(x.grad.isfinite().all() for x in model.parameters() if x.grad is not None)
