"""Text that is generated does not depend on the cache, nor on padding."""

import pytest
import torch
import transformers

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.attention import watching
from adasparse.integrations.huggingface.implementations import holders
from support.architectures import ARCHITECTURES, inputs_for, tokens

GENERATORS = [name for name, architecture in ARCHITECTURES.items() if architecture.generates]
DECODERS = [name for name in GENERATORS if not ARCHITECTURES[name].is_seq2seq]
MODES = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "sampling": {"do_sample": True, "top_k": 0},
}
NEW_TOKENS = 8


def sparse(name):
    model = ARCHITECTURES[name].build()
    sparsify(model, SparsityConfig(init_alpha=1.6))
    if model.generation_config is not None:
        model.generation_config.eos_token_id = None
    return model


def generate(model, name, inputs, **options):
    torch.manual_seed(0)
    key = "input_features" if name == "whisper" else "input_ids"
    given = {x: inputs[x] for x in (key, "attention_mask") if x in inputs}
    if name == "whisper":
        given["decoder_input_ids"] = torch.ones(len(inputs[key]), 1, dtype=torch.long)
        options["attention_mask"] = torch.ones(inputs[key].shape[0], inputs[key].shape[2])
    return model.generate(**given, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GENERATORS)
def test_caches_change_nothing(name, mode):
    model = sparse(name)
    inputs = inputs_for(name, padding="right" if ARCHITECTURES[name].is_seq2seq else "left")
    expected = generate(model, name, inputs, use_cache=False, **MODES[mode])
    assert expected.shape[1] >= NEW_TOKENS
    for cache in ("dynamic", "static"):
        actual = generate(model, name, inputs, cache_implementation=cache, **MODES[mode])
        assert torch.equal(actual, expected), cache


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODERS)
def test_padding_on_the_left_changes_nothing(name, cache):
    model = sparse(name)
    prompt = tokens(1, 5)
    alone = model.generate(prompt, max_new_tokens=NEW_TOKENS, cache_implementation=cache)
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), prompt], dim=1)
    together = torch.cat([padded, tokens(1, 9, seed=5)])
    mask = torch.ones_like(together)
    mask[0, :4] = 0
    both = model.generate(
        together, attention_mask=mask, max_new_tokens=NEW_TOKENS, cache_implementation=cache
    )
    assert torch.equal(both[0, 4:], alone[0])


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_prefill_of_a_static_cache_is_causal_from_its_start(name):
    """A None mask there means keys 0 to i; a triangle in the lower right corner is nonsense."""
    model = sparse(name)
    seen = []
    with watching(seen.append):
        model.generate(tokens(2, 5), max_new_tokens=3, cache_implementation="static")
    prefill, *steps = [call for call in seen if call.module is seen[0].module]
    assert prefill.is_causal
    assert prefill.mask is None
    assert prefill.key.shape[2] > prefill.query.shape[2] == 5
    for i, call in enumerate(steps):
        assert call.query.shape[2] == 1
        assert not call.is_causal
        assert call.mask is None
        assert call.key_lengths.tolist() == [6 + i, 6 + i]


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_weights_can_be_had_while_generating(name):
    model = sparse(name)
    inputs = inputs_for(name)
    output = generate(model, name, inputs, output_attentions=True, return_dict_in_generate=True)
    weights = output.decoder_attentions if name == "t5" else output.attentions
    assert len(weights) == NEW_TOKENS
    assert all(torch.allclose(x.sum(-1), torch.ones(())) for step in weights for x in step)


PROMPTS = [[17, 18, 19, 20, 21], [30, 31], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50]]


def batched(model, prompts):
    """Generate with a paged cache, as servers do: each prompt of its own length, no padding."""
    settings = transformers.GenerationConfig(
        max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    # Two pages for each prompt, and fewer tokens at once than all prompts have.
    pages = transformers.ContinuousBatchingConfig(num_blocks=16, page_size=16, max_batch_tokens=16)
    found = model.generate_batch(
        prompts, generation_config=settings, continuous_batching_config=pages
    )
    return [x.generated_tokens for _, x in sorted(found.items())]


@pytest.mark.parametrize(
    ("name", "repeats"), [("llama", 1), pytest.param("gemma2", 2, marks=pytest.mark.slow)]
)
def test_continuous_batching_changes_nothing(name, repeats):
    model = sparse(name)
    before = {key: config._attn_implementation for key, _, _, config in holders(model)}
    alone = [
        model.generate(
            torch.tensor([x]), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False
        )[0, len(x) :].tolist()
        for x in PROMPTS
    ]
    for _ in range(repeats):
        assert batched(model, PROMPTS) == alone
        after = {key: config._attn_implementation for key, _, _, config in holders(model)}
        assert after == before
    restore(model)
    assert {config._attn_implementation for _, _, _, config in holders(model)} <= {"sdpa", "eager"}


def test_continuous_batching_is_refused_where_code_of_its_own_attends():
    config = transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=1, n_head=4)
    model = transformers.BloomForCausalLM(config).eval()
    sparsify(model)
    with pytest.raises(ValueError, match=r"no paged cache .* generate\(\) with a padded batch"):
        batched(model, PROMPTS)
