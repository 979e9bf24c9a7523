"""The models against the float64 oracle: every attention and position, padding and caches."""

from dataclasses import replace

import pytest
import torch
from transformers import DynamicCache, StaticCache

from adasparse.functional.adaptive_temperature import inverse_temperature
from adasparse.integrations.calls import steering
from adasparse.longcontext import LongContextConfig, LongContextForCausalLM, watching
from adasparse.longcontext.rotary import rotation
from adasparse.longcontext.visibility import visibility_of
from support.dense_model import reference_logits
from support.small_models import ATTENTIONS, BAR, POSITIONS, model, padding, tokens

every_kind = pytest.mark.parametrize("positions", POSITIONS)


def assert_close_to_oracle(found, expected):
    is_token = ~expected.isnan()
    error = (found.double() - expected)[is_token].abs().max().item()
    assert error <= BAR, f"error {error:.1e}"
    assert expected[is_token].std() > 0.3  # not all the same


@every_kind
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_agrees_with_the_oracle(attention, positions):
    made, ids = model(attention, positions), tokens(2, 17)
    with torch.no_grad():
        expected = reference_logits(made, ids)
        assert_close_to_oracle(made(ids).logits, expected)
        # Slopes such as 1/3 are those of float32.
        torch.testing.assert_close(made.double()(ids).logits, expected, atol=1e-6, rtol=0)


@every_kind
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_padding_changes_nothing(attention, positions):
    made, ids = model(attention, positions), tokens(3, 12)
    for side in ("left", "right"):
        mask = padding([12, 7, 1], 12, side)
        with torch.no_grad():
            found = made(ids, attention_mask=mask).logits
        assert found.isfinite().all()
        assert_close_to_oracle(found, reference_logits(made, ids, mask))


@every_kind
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_cache_changes_nothing(attention, positions):
    made, ids = model(attention, positions), tokens(3, 10)
    for side in ("left", "right"):
        # Right padding comes between the prompt and what follows.
        mask = torch.cat((padding([5, 3, 1], 5, side), torch.ones(3, 5, dtype=torch.long)), 1)
        expected = reference_logits(made, ids, mask)
        for cache in (DynamicCache(), StaticCache(made.config, max_cache_len=20)):
            found, start = [], 0
            for stop in (5, 8, 9, 10):
                with torch.no_grad():
                    output = made(
                        ids[:, start:stop], attention_mask=mask[:, :stop], past_key_values=cache
                    )
                found.append(output.logits)
                start = stop
            assert_close_to_oracle(torch.cat(found, 1), expected)


@every_kind
def test_gaps_without_a_cache_change_nothing(positions):
    made, ids = model("asentmax", positions), tokens(2, 11)
    mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1]])
    with torch.no_grad():
        found = made(ids, attention_mask=mask).logits
    assert_close_to_oracle(found, reference_logits(made, ids, mask))


@pytest.mark.parametrize(
    ("positions", "heads", "groups"),
    [
        ("alibi", 1, 1),
        ("alibi", 8, 8),
        ("nape", 1, 1),
        ("nape", 8, 4),
        ("nape", 6, 1),
        ("nape", 3, 1),
    ],
)
def test_any_number_of_heads(positions, heads, groups):
    width = {"hidden_size": 8 * heads, "num_attention_heads": heads, "num_key_value_heads": groups}
    made, ids = model("asentmax-adaptive", positions, **width), tokens(1, 9)
    with torch.no_grad():
        assert_close_to_oracle(made(ids).logits, reference_logits(made, ids))


@pytest.mark.parametrize("positions", ["rope", "nape"])
def test_heads_of_a_size_of_their_own(positions, tmp_path):
    made = model("asentmax", positions, hidden_size=30, num_attention_heads=4, head_dim=12)
    assert made.model.layers[0].self_attn.o_proj.in_features == 48
    ids = tokens(1, 9)
    with torch.no_grad():
        assert_close_to_oracle(made(ids).logits, reference_logits(made, ids))
    made.save_pretrained(tmp_path)
    loaded = LongContextForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, made(ids).logits)


def test_configuration_without_head_size_divides_the_width():
    config = LongContextConfig(hidden_size=32, num_attention_heads=4).to_dict()
    assert config.pop("head_dim") == 8
    assert LongContextConfig.from_dict(config).head_dim == 8


def test_untied_embeddings_and_other_settings():
    made = model("entmax", "rope", tie_word_embeddings=False, rope_theta=100.0, alpha=1.8)
    assert made.lm_head.weight is not made.model.embed_tokens.weight
    ids = tokens(1, 15)
    with torch.no_grad():
        assert_close_to_oracle(made(ids).logits, reference_logits(made, ids))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_weights_are_what_values_get(attention):
    made, ids = model(attention, "nape"), tokens(2, 9)
    calls = []
    with watching(calls.append), torch.no_grad():
        output = made(ids, attention_mask=padding([9, 5], 9, "left"), output_attentions=True)
    assert len(output.attentions) == len(calls) == 2
    for weights, call in zip(output.attentions, calls, strict=True):
        value = call.value.repeat_interleave(2, 1)
        torch.testing.assert_close(weights @ value, call.output(), atol=1e-5, rtol=0)
        sums = weights.sum(-1)
        torch.testing.assert_close(sums[0], torch.ones(4, 9))
        assert (sums[1, :, :4] == 0).all()  # padding sees nothing
        assert torch.equal(weights[0].triu(1), torch.zeros(4, 9, 9))
    assert [call.module for call in calls] == [x.self_attn for x in made.model.layers]


def test_calls_can_be_steered():
    made, ids = model("entmax", "rope", alpha=1.3), tokens(2, 30)
    expected = model("entmax", "rope", alpha=1.9)(ids).logits
    before = made(ids).logits
    with steering(lambda call: replace(call, alpha=1.9)):
        found = made(ids).logits
    assert (before - expected).abs().max() > 1e-3
    torch.testing.assert_close(found, expected)
    assert torch.equal(made(ids).logits, before)


def test_adaptive_temperature_is_for_inference():
    made, plain, ids = model("adaptive-temperature"), model("softmax"), tokens(2, 30)
    plain.load_state_dict(made.state_dict())
    expected = plain(ids).logits
    assert (made(ids).logits - expected).abs().max() > 1e-3
    torch.testing.assert_close(made.train()(ids).logits, expected)


def test_adaptive_temperature_takes_blocks_of_rows(monkeypatch):
    made, ids = model("adaptive-temperature", "nape"), tokens(2, 23)
    mask = padding([23, 11], 23, "left")
    with torch.no_grad():
        expected = made(ids, attention_mask=mask).logits
        monkeypatch.setattr("adasparse.functional.adaptive_temperature.BLOCK_SIZE", 2 * 4 * 23 * 5)
        found = made(ids, attention_mask=mask).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_inverse_temperature_by_hand():
    sharp = torch.tensor([[5.0, 0.0], [0.0, -torch.inf], [-torch.inf, -torch.inf]])
    assert inverse_temperature(sharp).flatten().tolist() == [1, 1, 1]
    entropy = torch.tensor(8.0, dtype=torch.float64).log()  # of eight equal weights
    powers = torch.stack([entropy**i for i in (4, 3, 2, 1, 0)])
    coefficients = torch.tensor([-0.037, 0.481, -2.3, 4.917, -1.791], dtype=torch.float64)
    expected = (powers * coefficients).sum()
    assert expected > 1
    torch.testing.assert_close(inverse_temperature(torch.zeros(1, 8).double())[0, 0], expected)
    assert inverse_temperature(torch.zeros(1, 10**5)).item() == 1  # where the polynomial is below


def test_angles_keep_their_digits_at_far_positions():
    cos, sin = rotation(torch.tensor([[65537]]), 4, theta=10000.0, dtype=torch.float32)
    angles = torch.tensor([65537.0, 655.37], dtype=torch.float64)
    torch.testing.assert_close(cos.flatten().double(), angles.cos(), atol=1e-7, rtol=0)
    torch.testing.assert_close(sin.flatten().double(), angles.sin(), atol=1e-7, rtol=0)


def test_visibility_builds_no_matrix_for_whole_sequences():
    for side in ("left", "right"):
        mask = padding([9, 4], 9, side)
        seen = visibility_of(mask, num_queries=9, num_past=0, device=mask.device)
        assert seen.is_causal
        assert (seen.mask is None) == (side == "right")
        assert seen.mask is None or seen.mask.shape == (2, 1, 1, 9)
        assert seen.padding_after is None
    assert seen.positions[1, :4].tolist() == [0, 1, 2, 3]
    left = visibility_of(padding([3], 6, "left"), num_queries=6, num_past=0, device=mask.device)
    assert left.positions.tolist() == [[0, 0, 0, 0, 1, 2]]
    assert left.num_visible().shape == (1, 1, 6, 1)


def test_errors_quote_what_was_given():
    made, ids = model(), tokens(1, 4)
    with pytest.raises(
        ValueError, match=r"\(b, 4\), one value for each of 0 cached and 4 new.*3\)"
    ):
        made(ids, attention_mask=torch.ones(1, 3))
    with pytest.raises(ValueError, match="exactly one of input_ids"):
        made()
    with pytest.raises(ValueError, match="position_ids must be None"):
        made(ids, position_ids=torch.arange(4)[None])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "hard"}, "'asentmax-adaptive'.*; got 'hard'"),
        ({"positions": "sine"}, "'nape'.*; got 'sine'"),
        ({"num_attention_heads": 3}, "divide hidden_size if head_dim is not given; got 3 and 256"),
        ({"num_key_value_heads": 3}, "divide num_attention_heads; got 3 and 8"),
        ({"head_dim": 0}, "head_dim must be an integer of at least 1; got 0"),
        ({"head_dim": 5, "positions": "rope"}, "rotates pairs, .*even size; got 5"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer of at least 1; got 0"),
        ({"hidden_size": 8, "positions": "rope"}, "rotates pairs, .*even size; got 1"),
        ({"attention": "adaptive", "alpha": 2.0}, "strictly between 1 and 2; got 2.0"),
        ({"alpha": 0.5}, "at least 1 and finite; got 0.5"),
        ({"dropout": 1.0}, "below 1; got 1.0"),
        ({"rope_theta": 0.0}, "rope_theta must be positive; got 0.0"),
        ({"initializer_range": 0.0}, "initializer_range must be above 0 and at most 1; got 0.0"),
        ({"attention": "hard", "vocab_size": 0}, "attention must.*; vocab_size must"),
    ],
)
def test_configurations_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        LongContextConfig(**changes)
