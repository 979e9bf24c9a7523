"""Dummy inputs that fit: two towers, tiny vocabularies, models that need more than is known."""

import pytest
import torch
import transformers

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify
from adasparse.integrations.huggingface.dummies import dummy_inputs, text_config
from adasparse.integrations.huggingface.probe import silent_attention

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_VISION = {**_SIZES, "image_size": 16, "patch_size": 8}


@pytest.mark.parametrize("name", ["CLIP", "Siglip"])
def test_both_towers_become_sparse(name):
    text = {**_SIZES, "vocab_size": 50, "eos_token_id": 49, "max_position_embeddings": 16}
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=_VISION)
    model = getattr(transformers, f"{name}Model")(config).eval()
    inputs = {"input_ids": torch.arange(2, 8)[None], "pixel_values": torch.randn(1, 3, 16, 16)}
    expected = model(**inputs).logits_per_text
    report = sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0))
    assert {module.split(".")[0] for module in report.changed} == {"text_model", "vision_model"}
    assert torch.allclose(model(**inputs).logits_per_text, expected, atol=1e-5)
    restore(model)
    assert torch.equal(model(**inputs).logits_per_text, expected)


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 9])
def test_tiny_vocabularies_will_do(vocabulary):
    config = transformers.LlamaConfig(
        **_SIZES, vocab_size=vocabulary, bos_token_id=0, eos_token_id=0
    )
    model = transformers.LlamaForCausalLM(config)
    assert len(sparsify(model, SparsityConfig()).changed) == 2


def test_a_model_that_cannot_run_on_the_dummy_asks_for_inputs():
    class Picky(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            raise RuntimeError("no picture")

    model = Picky(transformers.LlamaConfig(**_SIZES, vocab_size=50))
    with pytest.raises(ValueError, match=r"Picky failed on input_ids .* no picture\. Pass inputs="):
        sparsify(model, SparsityConfig())


def test_tokens_of_a_model_with_text_on_both_ends_are_those_of_its_encoder():
    """sparsify() of MusicGen ended with "Multiple valid text configs were found"."""
    parts = {
        "text_encoder": transformers.T5Config(vocab_size=3).to_dict(),
        "audio_encoder": transformers.EncodecConfig().to_dict(),
        "decoder": transformers.MusicgenDecoderConfig(vocab_size=70).to_dict(),
    }
    assert text_config(transformers.MusicgenConfig(**parts)).vocab_size == 3


def test_sound_of_a_size_that_is_not_known_asks_for_inputs():
    """sparsify() of Speech2Text ended with an AttributeError."""
    config = transformers.Speech2TextConfig(
        vocab_size=50, d_model=32, encoder_layers=1, decoder_layers=1, max_source_positions=64,
        encoder_attention_heads=2, decoder_attention_heads=2, conv_channels=16,
    )  # fmt: skip
    model = transformers.Speech2TextForConditionalGeneration(config)
    with pytest.raises(ValueError, match="Pass inputs="):
        sparsify(model, SparsityConfig())


def test_a_module_that_is_never_called_is_no_attention():
    class AttentionStructure(torch.nn.Module):
        """Positions that attention asks for, as Funnel has."""

    class OtherAttention(torch.nn.Module):
        def forward(self, x):
            return x

    model = torch.nn.ModuleDict({"structure": AttentionStructure(), "other": OtherAttention()})
    assert silent_attention(model, []) == ["other"]


def test_images_are_as_small_as_those_of_a_backbone():
    backbone = transformers.Dinov2Config(
        image_size=28, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, out_indices=[1]
    )
    sizes = {"neck_hidden_sizes": [8], "reassemble_factors": [1], "reassemble_hidden_size": 32}
    config = transformers.DepthAnythingConfig(backbone_config=backbone, **sizes)
    model = transformers.DepthAnythingForDepthEstimation(config)
    assert dummy_inputs(model)["pixel_values"].shape == (1, 3, 28, 28)


def test_hidden_states_are_collected_once():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    config = transformers.CLIPVisionConfig(
        image_size=16, patch_size=8, num_hidden_layers=3, **sizes
    )
    model = transformers.CLIPVisionModel(config).eval()
    inputs = {"pixel_values": torch.randn(1, 3, 16, 16), "output_hidden_states": True}
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0), inputs=inputs)
    sparse = model(**inputs).hidden_states
    restore(model)
    dense = model(**inputs).hidden_states
    assert len(sparse) == len(dense) == 4
    assert all(torch.allclose(x, y, atol=1e-5) for x, y in zip(sparse, dense, strict=True))


def test_a_model_that_picks_hidden_states_is_the_same_at_one():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    vision = transformers.CLIPVisionConfig(
        image_size=16, patch_size=8, num_hidden_layers=3, **sizes
    )
    text = transformers.LlamaConfig(vocab_size=96, num_hidden_layers=1, **sizes)
    model = transformers.LlavaModel(
        transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_id=90)
    ).eval()
    ids = torch.tensor([[20, 90, 90, 90, 90, 21]])
    inputs = {"input_ids": ids, "pixel_values": 4 * torch.randn(1, 3, 16, 16)}
    expected = model(**inputs).last_hidden_state
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.0), inputs=inputs)
    assert torch.allclose(model(**inputs).last_hidden_state, expected, atol=1e-5)
    restore(model)
    assert torch.equal(model(**inputs).last_hidden_state, expected)
