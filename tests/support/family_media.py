"""Inputs that reach all of a model: images and sound among the text, the states of an encoder."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.probe import undisturbed

Inputs = dict[str, Any]
_TEXT = 6  # tokens on either side of what stands for an image or a sound
_SIZE = 2  # of the batch
#: Masks of sound, all of ones here.
_SOUND_MASKS = ("input_features_mask", "feature_attention_mask", "audio_attention_mask")


@dataclass(frozen=True)
class _Medium:
    """An image or a sound, as a model takes it.

    Args:
        token: Number of the token that stands for one of its features.
        arguments: Arguments of the forward pass.
        count: Number of these tokens in each text.
    """

    token: int
    arguments: Inputs
    count: int


def fuller_inputs(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yield inputs that run and reach more than text alone does, those that reach most first."""
    parameters = inspect.signature(model.forward).parameters
    if "encoder_hidden_states" in parameters and not model.config.is_encoder_decoder:
        yield from _with_encoder_states(model)
    media = []
    for kind, forms in (("image", _image_forms), ("audio", _sound_forms)):
        token = _setting(model.config, f"{kind}_token_id", f"{kind}_token_index")
        if isinstance(token, int):
            found = _first_that_runs(model, token, forms(model))
            media += [found] if found is not None else []
    for count in range(len(media), 0, -1):
        for some in itertools.combinations(media, count):
            inputs = _joined(model, [*some])
            if _failure(model, inputs) is None:
                yield inputs


def _setting(config: Any, *names: str, default: Any = None) -> Any:
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    return default


def _part(model: PreTrainedModel, pattern: str) -> Any:
    """Return the part of a configuration whose name fits, the whole one if there is none."""
    config = model.config
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if part is None:
            continue
        if re.search(pattern, name):
            return part
        for inner in part.sub_configs:  # as of a model that thinks, in one that speaks
            if re.search(pattern, inner):
                return getattr(part, inner)
    return config


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def _with_encoder_states(model: PreTrainedModel) -> Iterator[Inputs]:
    for width in (*(_setting(model.config, x) for x in ("cross_attention_hidden_size",)), None):
        size = width or _setting(model.config, "hidden_size", "d_model", default=32)
        inputs = {"input_ids": _ids([]), "encoder_hidden_states": _noise(_SIZE, 7, size)}
        if _failure(model, inputs) is None:
            yield inputs
            return


def _image_forms(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yield what images may look like: whole, by patches in one row, several to a text."""
    vision = _part(model, "vision|visual|image|vit")
    side = _setting(vision, "image_size", "img_size", default=32)
    side = side if isinstance(side, int) else max(side)
    patch = _setting(vision, "patch_size", "spatial_patch_size", default=8)
    patch = patch if isinstance(patch, int) else max(patch)
    channels = _setting(vision, "num_channels", "in_channels", "in_chans", default=3)
    frames = _setting(vision, "temporal_patch_size", default=1)
    image = (channels, side, side)
    sizes = torch.tensor([[side, side]] * _SIZE)
    patches = _noise(_SIZE * 16, channels * frames * patch * patch)
    grid = torch.tensor([[1, 4, 4]] * _SIZE)
    yield {"pixel_values": patches, "image_grid_thw": grid}
    yield {"pixel_values": _noise(_SIZE, *image)}
    yield {"pixel_values": _noise(_SIZE, *image), "image_sizes": sizes}
    yield {"pixel_values": _noise(_SIZE, 2, *image), "image_sizes": sizes}
    yield {"pixel_values": _noise(_SIZE, 1, *image)}
    yield {"pixel_values": patches.view(_SIZE, 16, -1), "image_grid_thw": grid}
    yield {"pixel_values": patches.view(-1, channels, patch, patch), "image_grid_thw": grid}
    yield {
        "pixel_values": _noise(_SIZE, 1, 4, *image),
        "aspect_ratio_ids": torch.ones(_SIZE, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(_SIZE, 1, 4, dtype=torch.long),
    }


def _sound_forms(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yield what sound may look like: with bins before frames or after them, of several lengths."""
    audio = _part(model, "audio|speech|encoder")
    bins = _setting(audio, "num_mel_bins", "input_feat_size", "input_dim", "n_mels", default=80)
    positions = _setting(audio, "max_source_positions", default=64)
    parameters = inspect.signature(model.forward).parameters
    for length in dict.fromkeys((2 * positions, 64, 128, 200)):
        for shape in ((bins, length), (length, bins)):
            masks = {
                name: torch.ones(_SIZE, length, dtype=torch.long)
                for name in _SOUND_MASKS
                if name in parameters
            }
            yield {"input_features": _noise(_SIZE, *shape), **masks}
            if masks:
                are_true = {name: x.bool() for name, x in masks.items()}
                yield {"input_features": _noise(_SIZE, *shape), **are_true}
    yield {"input_values": _noise(_SIZE, 1, 4800)}


def _first_that_runs(model: PreTrainedModel, token: int, forms: Iterator[Inputs]) -> _Medium | None:
    parameters = inspect.signature(model.forward).parameters
    for arguments in forms:
        if not set(arguments) <= set(parameters):
            continue
        for count in _counts(model, token, arguments):
            medium = _Medium(token, arguments, count)
            if _failure(model, _joined(model, [medium])) is None:
                return medium
    return None


def _counts(model: PreTrainedModel, token: int, arguments: Inputs) -> Iterator[int]:
    """Yield how many tokens may stand for the features of one of these, as errors tell."""
    for first in (1, 4):
        yield first
        message = _failure(model, _joined(model, [_Medium(token, arguments, first)])) or ""
        wanted = re.search(r"features:?\s*(?:torch\.Size\(\[)?(\d+)", message, re.IGNORECASE)
        if wanted:
            total = int(wanted[1])
            yield total // _SIZE
            width = _setting(model.config.get_text_config(), "hidden_size", default=32)
            yield total // (_SIZE * width)
            yield total


def _ids(media: list[_Medium]) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    rows = [torch.randint(16, 60, (_SIZE, _TEXT), generator=generator)]
    for medium in media:
        rows.append(torch.full((_SIZE, medium.count), medium.token))
        rows.append(torch.randint(16, 60, (_SIZE, _TEXT), generator=generator))
    return torch.cat(rows, 1)


def _joined(model: PreTrainedModel, media: list[_Medium]) -> Inputs:
    """Return a text of words and media."""
    parameters = inspect.signature(model.forward).parameters
    inputs: Inputs = {"input_ids": _ids(media)}
    for medium in media:
        inputs |= medium.arguments
    if "qformer_input_ids" in parameters:
        inputs["qformer_input_ids"] = _ids([])
    if "mm_token_type_ids" in parameters:
        kinds = torch.zeros_like(inputs["input_ids"])
        for medium in media:
            is_image = "pixel_values" in medium.arguments
            kinds[inputs["input_ids"] == medium.token] = 1 if is_image else 3
        inputs["mm_token_type_ids"] = kinds
    return inputs


def _failure(model: PreTrainedModel, inputs: Inputs) -> str | None:
    """Return the message of a forward pass that fails, None if it runs."""
    run: Callable[..., Any] = model
    try:
        with undisturbed(model):
            run(**inputs)
    except Exception as error:
        return str(error) or type(error).__name__
    return None
