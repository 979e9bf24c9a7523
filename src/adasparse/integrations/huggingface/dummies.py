"""Inputs to try a model with: dummies that fit its configuration, and the same with padding."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

#: Lengths that differ, so that attention to another sequence shows, and are no usual head count.
_SOURCE_LENGTH, _TARGET_LENGTH = 7, 5


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return the part of a configuration that ``input_ids`` belong to."""
    try:
        return config.get_text_config()
    except ValueError:  # several parts have text, as in MusicGen: the encoder reads it
        return config.get_text_config(encoder=True)


def dummy_inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return small inputs that fit the model, as far as its configuration tells.

    Raises:
        ValueError: For a model with a main input that is not known here.
    """
    config, name = model.config, model.main_input_name
    # Hooks of accelerate bring inputs to where an offloaded model runs.
    device = torch.device("cpu") if model.device.type == "meta" else model.device
    dtype = model.dtype
    parameters = inspect.signature(model.forward).parameters

    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    def tokens(length: int) -> Tensor:
        # The first ids are often special; a vocabulary may have no others.
        count = getattr(text_config(config), "vocab_size", None) or 10
        first = min(2, count - 1)
        ids = torch.arange(length, device=device).remainder(min(8, count - first)) + first
        return ids.unsqueeze(0)

    def image() -> Tensor:
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None)
        if size is None:  # of any size, then; those of a backbone may be smaller than usual
            size = getattr(getattr(vision, "backbone_config", None), "image_size", None) or 224
            size = min(224, size if isinstance(size, int) else min(size))
        height, width = (size, size) if isinstance(size, int) else size
        return noise(1, getattr(vision, "num_channels", 3), height, width)

    inputs: dict[str, Tensor] = {}
    if name == "input_ids":
        inputs[name] = tokens(_SOURCE_LENGTH)
        if type(model).__name__.endswith("ForMultipleChoice"):
            inputs[name] = inputs[name].unsqueeze(1).repeat(1, 2, 1)
        # Two towers, as CLIP; a language model with images would need tokens that stand for them.
        has_tokens = any(hasattr(config, f"image_token_{x}") for x in ("id", "index"))
        if hasattr(config, "vision_config") and not model.can_generate() and not has_tokens:
            inputs["pixel_values"] = image()
    elif name == "pixel_values":
        inputs[name] = image()
        if hasattr(config, "text_config") and "input_ids" in parameters:
            inputs["input_ids"] = tokens(_SOURCE_LENGTH)
    elif name == "input_features" and all(
        hasattr(config, x) for x in ("max_source_positions", "num_mel_bins")
    ):
        inputs[name] = noise(1, config.num_mel_bins, 2 * config.max_source_positions)
    elif name == "input_values":
        inputs[name] = noise(1, 4000)
    else:
        raise ValueError(
            f"sparsify() runs the model once to see which modules attend; {type(model).__name__} "
            f"takes {name!r}, for which there is no dummy. Pass inputs={{{name!r}: ...}}."
        )
    end = getattr(text_config(config), "eos_token_id", None)
    if config.is_encoder_decoder and type(model).__name__.endswith("ForSequenceClassification"):
        # It classifies what the decoder makes of the last token of the text, an end.
        if name == "input_ids" and isinstance(end, int):
            inputs[name][:, -1] = end
    elif config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens(_TARGET_LENGTH)
    return inputs


def padded_inputs(
    model: PreTrainedModel, inputs: Mapping[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """Yield ways to run a model on the same inputs with padding; the first that runs will do.

    Each way is a list of inputs, which have padding on the right and on the left between them.
    """
    parameters = inspect.signature(model.forward).parameters
    masks = {}
    for key, mask in (
        ("input_ids", "attention_mask"),
        ("input_values", "attention_mask"),
        ("decoder_input_ids", "decoder_attention_mask"),
    ):
        ids = inputs.get(key)
        if isinstance(ids, Tensor) and ids.dim() == 2 and mask in parameters and ids.shape[1] > 2:
            masks[mask] = _side_masks(ids)
    if not masks:
        return
    text_only = {"input_ids", "decoder_input_ids"}
    if all(key in text_only and len(x) == 1 for key, x in inputs.items()):
        both = {key: x.repeat(2, 1) for key, x in inputs.items()}
        yield [{**both, **{name: torch.cat(sides) for name, sides in masks.items()}}]
    yield [
        {**inputs, **{name: _onto(inputs.get(name), sides[i]) for name, sides in masks.items()}}
        for i in range(2)
    ]


def _side_masks(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return masks with padding on the right and on the left, for about a third of the ids."""
    right = torch.ones_like(ids, dtype=torch.long)
    right[:, -(ids.shape[1] // 3) :] = 0
    return right, right.flip(-1)


def _onto(given: Any, mask: Tensor) -> Tensor:
    """Add padding to what a mask that was given holds, if both fit together."""
    if isinstance(given, Tensor) and given.shape == mask.shape:
        both = given * mask.to(given.dtype)
        return both if bool(both.any(-1).all()) else given
    return mask
