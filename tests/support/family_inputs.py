"""Inputs for tiny models of every family: what the names of their arguments ask for."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.dummies import dummy_inputs, text_config

LENGTH = 9
Inputs = dict[str, Any]


def possible_inputs(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yield inputs that may fit a model, the most usual first."""
    try:
        known = dummy_inputs(model)
    except ValueError:
        known = {}
    if known and known.keys() <= {"input_ids", "decoder_input_ids"}:
        text = _text(model, [*known])
        yield text
        yield {"input_ids": text["input_ids"]}
        if len(text) > 1:
            yield dict.fromkeys(text, text["input_ids"])
    if known:
        yield known
    yield from _by_arguments(model)
    if known:
        yield {**known, "use_cache": False}


def _text(model: PreTrainedModel, names: list[str]) -> Inputs:
    generator = torch.Generator().manual_seed(1)
    # Small numbers and large ones are special tokens.
    inputs = {
        key: torch.randint(16, 60, (2, LENGTH - 2 * i), generator=generator)
        for i, key in enumerate(names)
    }
    end = getattr(text_config(model.config), "eos_token_id", None)
    if isinstance(end, int):
        inputs["input_ids"][:, -1] = end  # by which some classes pick a position
    question, separator = (
        getattr(model.config, f"{x}_token_id", None) for x in ("question", "sep")
    )
    if question is not None:
        inputs["input_ids"][:, 2] = question
    if separator is not None and model.config.model_type == "longformer":
        inputs["input_ids"][:, [2, 4, 6]] = separator
    if model.config.model_type == "kyutai_speech_to_text":
        inputs["input_ids"] = inputs["input_ids"].unsqueeze(2).repeat(1, 1, _codebooks(model) + 1)
    if "musicgen" in model.config.model_type:
        codes = [*inputs][-1]
        inputs[codes] = inputs[codes].repeat(_codebooks(model), 1)
    if "MultipleChoice" in type(model).__name__:
        inputs = {key: x.unsqueeze(1).repeat(1, 3, 1) for key, x in inputs.items()}
    return inputs


def _codebooks(model: PreTrainedModel) -> int:
    config = getattr(model.config, "decoder", model.config)
    return int(getattr(config, "num_codebooks", 1))


def _by_arguments(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yield inputs for the arguments that a model must have, or that its kind of model needs."""
    maker = _Maker(model)
    parameters = inspect.signature(model.forward).parameters
    required = [
        name
        for name, x in parameters.items()
        if x.default is inspect.Parameter.empty and x.kind is x.POSITIONAL_OR_KEYWORD
    ]
    main = model.main_input_name
    mains = [main] if isinstance(main, str) else [*main]
    for extra in ([], *maker.groups):
        usual = [x for x in mains if x in parameters]
        names = [*dict.fromkeys([*required, *usual, *extra])]
        # Masks and text are as long as the sound that they are for.
        names.sort(key=lambda x: x.endswith("mask") or x == "input_ids")
        if all(maker.can_make(x) for x in names) and set(names) <= set(parameters):
            for variant in range(maker.variants(names)):
                yield {name: maker.make(name, variant) for name in names}


class _Maker:
    """Tensors by the names of arguments, as a configuration says."""

    #: Arguments that are needed together, though their signatures do not say so.
    groups = (
        ["input_ids"],
        ["input_ids", "bbox"],
        ["input_ids", "pixel_values"],
        ["input_ids", "pixel_values", "attention_mask"],
        ["input_ids", "input_features"],
        ["input_ids", "visual_feats", "visual_pos"],
        ["input_ids", "visual_embeds"],
        ["input_features", "decoder_input_ids"],
        ["input_features", "input_features_mask"],
        ["input_features", "attention_mask"],
        ["input_values", "decoder_input_ids"],
        ["pixel_values", "decoder_input_ids"],
        ["pixel_values", "input_ids", "bbox"],
        ["pixel_values", "input_points"],
        ["pixel_values", "pixel_mask"],
        ["hidden_states", "grid_thw"],
        ["past_values", "past_time_features", "past_observed_mask", "future_values",
         "future_time_features"],
        ["past_values", "past_observed_mask"],
        ["past_values", "freq"],
        ["states", "actions", "rewards", "returns_to_go", "timesteps", "attention_mask"],
        ["input_ids", "pixel_values", "image_attention_mask"],
        ["input_ids", "pixel_values", "image_embeds_position_mask"],
        ["flattened_patches", "decoder_input_ids"],
        ["inputs"],
        ["input_ids", "image"],
        ["input_ids", "bbox", "decoder_input_ids"],
        ["input_ids", "bbox", "pixel_values", "decoder_input_ids"],
        ["pixel_values", "pixel_attention_mask", "spatial_shapes"],
        ["input_ids", "pixel_values", "pixel_attention_mask", "spatial_shapes"],
        ["pixel_values", "task_inputs"],
        ["input_values", "decoder_input_values"],
        ["input_ids", "decoder_input_values"],
        ["inputs", "decoder_input_ids"],
        ["encoder_hidden_states"],
        ["pixel_values", "target_sizes"],
        ["input_ids", "decoder_input_values", "speaker_embeddings"],
    )  # fmt: skip

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.config = model, model.config
        self.generator = torch.Generator().manual_seed(2)
        self.frames = 64  # of the sound made last

    def _get(self, *names: str, default: Any) -> Any:
        """Return the first of these settings, of the configuration or of a part of it."""
        parts = [getattr(self.config, x, None) for x in self.config.sub_configs]
        for config in (self.config, *(x for x in parts if x is not None)):
            for name in names:
                value = vars(config).get(name)
                if value is not None:
                    return value
        return default

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def tokens(self, *shape: int) -> Tensor:
        return torch.randint(16, 60, shape, generator=self.generator)

    def can_make(self, name: str) -> bool:
        return hasattr(self, f"_{name}")

    def variants(self, names: list[str]) -> int:
        """Return how many forms there are: images and sound come in several."""
        by_patches = ("grid_thw", "spatial_shapes", "pixel_position_ids", "aspect_ratio_ids",
                      "target_sizes")  # fmt: skip
        if {*by_patches} & {*names}:
            return 9
        if {"pixel_values", "pixel_values_videos", "input_features", "input_values"} & {*names}:
            return 5 if "input_features" in names else 4
        several = {"past_values": 3, "inputs": 5, "hidden_states": 4}
        return several.get(names[0], 1) if names else 1

    def make(self, name: str, variant: int) -> Any:
        return getattr(self, f"_{name}")(variant)

    def _size(self) -> int:
        size = self._get("image_size", "img_size", "crop_size", default=32)
        size = size if isinstance(size, int) else min(size)
        return max(size, 32)

    def _pixel_values(self, variant: int) -> Tensor:
        channels = self._get("num_channels", "in_channels", "in_chans", default=3)
        size = self._size()
        frames = self._get("num_frames", "frames_per_clip", default=2)
        image = (channels, size, size)
        patch = self._get("patch_size", default=8)
        depth = self._get("temporal_patch_size", "patch_temporal", default=1)
        shapes = [
            (2, *image), (2, frames, *image), (2, channels, frames, size, size), (2, 3, 64, 64),
            (32, channels * depth * patch**2), (2, 16, channels * patch**2), (2, 1, 4, *image),
            (1, channels, patch, 32 * patch), (32, channels, patch, patch),
        ]  # fmt: skip
        return self.noise(*shapes[variant % len(shapes)])

    _pixel_values_videos = _image = _prompt_pixel_values = _prompt_masks = _pixel_values

    def _input_features(self, variant: int) -> Tensor:
        names = ("feature_projection_input_dim", "num_mel_bins", "input_feat_size", "feature_size",
                 "input_dim", "input_size")  # fmt: skip
        bins = self._get(*names, default=80)
        length = self._get("max_source_positions", "max_length", "n_window", default=64)
        length = min(length, 512)
        shapes = [
            (2, 64, bins), (2, bins, 2 * length), (2, length, bins), (2, 1, 64, bins),
            (2, 32, self._get("num_stacked_frames", default=4) * bins),
        ]  # fmt: skip
        variant %= len(shapes)
        self.frames = shapes[variant][2 if variant == 1 else -2]
        return self.noise(*shapes[variant % len(shapes)])

    def _input_values(self, variant: int) -> Tensor:
        bins = self._get("num_mel_bins", default=80)
        length = min(self._get("max_length", default=64), 1024)
        width = self._get("hidden_size", default=32)
        shapes = [(1, 16000), (1, 1, 4800), (2, length, bins), (2, 64, width)]
        return self.noise(*shapes[variant % len(shapes)])

    def _input_ids(self, _: int) -> Tensor:
        if self.config.model_type == "voxtral_realtime":
            return self.tokens(2, self.frames // 8)
        return _text(self.model, ["input_ids"])["input_ids"]

    def _decoder_input_ids(self, _: int) -> Tensor:
        return self.tokens(2, LENGTH - 2)

    def _query_embeds(self, _: int) -> Tensor:
        return self.noise(2, LENGTH, self._get("hidden_size", default=32))

    _inputs_embeds = _query_embeds

    def _hidden_states(self, variant: int) -> Tensor:
        size = self._get("hidden_size", default=32)
        if variant in (1, 2):
            return self.noise(2, *((size, LENGTH) if variant == 1 else (LENGTH, size)))
        if variant == 3:
            return self.noise(1, 1, 4800)
        patch = self._get("patch_size", default=8)
        frames = self._get("temporal_patch_size", default=1)
        channels = self._get("in_channels", "num_channels", "in_chans", default=3)
        return self.noise(32, channels * frames * patch * patch)

    def _grid_thw(self, _: int) -> Tensor:
        return torch.tensor([[1, 4, 4], [1, 4, 4]])

    def _bbox(self, _: int) -> Tensor:
        is_real = self._get("dim_bbox", default=0) or self.config.model_type == "udop"
        kind = torch.rand if is_real else torch.zeros
        return kind(2, LENGTH, 4) if kind is torch.rand else torch.zeros(2, LENGTH, 4).long()

    def _visual_feats(self, _: int) -> Tensor:
        return self.noise(2, 6, self._get("visual_feat_dim", default=16))

    def _visual_pos(self, _: int) -> Tensor:
        return self.noise(2, 6, 4)

    def _visual_embeds(self, _: int) -> Tensor:
        return self.noise(2, 6, self._get("visual_embedding_dim", default=32))

    def _pixel_mask(self, _: int) -> Tensor:
        return torch.ones(2, self._size(), self._size(), dtype=torch.long)

    def _attention_mask(self, _: int) -> Tensor:
        return torch.ones(2, LENGTH, dtype=torch.long)

    def _input_features_mask(self, _: int) -> Tensor:
        return torch.ones(2, self.frames, dtype=torch.bool)

    def _audio_mel(self, variant: int) -> Tensor:
        return self._input_features(0)

    def _audio_mel_mask(self, _: int) -> Tensor:
        return torch.zeros(2, 64, dtype=torch.bool)

    def _input_points(self, _: int) -> Tensor:
        return self.noise(2, 1, 1, 2).abs() * 8

    def _past_length(self) -> int:
        lags = self._get("lags_sequence", default=[0])
        return int(self._get("context_length", default=8)) + max(lags)

    def _past_values(self, variant: int) -> Any:
        if variant == 2:
            return [*self.noise(2, self._past_length())]
        channels = self._get("num_input_channels", default=1)
        size = (2, self._past_length())
        return self.noise(*size, channels) if channels > 1 or variant else self.noise(*size)

    def _past_observed_mask(self, variant: int) -> Tensor:
        return torch.ones_like(self._past_values(min(variant, 1)))

    def _past_values_padding(self, _: int) -> Tensor:
        return torch.zeros(2, self._past_length(), dtype=torch.long)

    def _past_time_features(self, _: int) -> Tensor:
        return self.noise(2, self._past_length(), self._get("num_time_features", default=0))

    def _future_values(self, _: int) -> Tensor:
        return self.noise(2, self._get("prediction_length", default=4))

    def _future_time_features(self, _: int) -> Tensor:
        count = self._get("num_time_features", default=0)
        return self.noise(2, self._get("prediction_length", default=4), count)

    def _freq(self, _: int) -> Tensor:
        return torch.zeros(2, 1, dtype=torch.long)

    def _states(self, _: int) -> Tensor:
        return self.noise(2, LENGTH, self._get("state_dim", default=17))

    def _actions(self, _: int) -> Tensor:
        return self.noise(2, LENGTH, self._get("act_dim", default=4))

    def _rewards(self, _: int) -> Tensor:
        return self.noise(2, LENGTH, 1)

    _returns_to_go = _rewards

    def _timesteps(self, _: int) -> Tensor:
        return torch.arange(LENGTH).repeat(2, 1)

    def _flattened_patches(self, _: int) -> Tensor:
        patch = self._get("patch_embed_hidden_size", default=8)
        positions = torch.arange(1, LENGTH + 1).reshape(1, -1, 1).expand(2, -1, 2)
        return torch.cat((positions, self.noise(2, LENGTH, patch)), -1)

    def _inputs(self, variant: int) -> Tensor:
        size = self._size()
        shapes = [
            (2, LENGTH, self._get("d_model", default=32)), (2, 3, size, size), (1, 3, 224, 224),
            (1, 16000),
        ]  # fmt: skip
        return self.noise(*shapes[variant - 1]) if variant else self.tokens(2, LENGTH)

    def _image_attention_mask(self, _: int) -> Tensor:
        return torch.ones(2, LENGTH, 2, dtype=torch.long)

    def _image_embeds_position_mask(self, _: int) -> Tensor:
        mask = torch.zeros(2, LENGTH, dtype=torch.long)
        mask[:, 1 : 1 + self._get("latent_query_num", default=4)] = 1
        return mask

    def _pixel_attention_mask(self, _: int) -> Tensor:
        return torch.ones(2, 16, dtype=torch.long)

    def _spatial_shapes(self, _: int) -> Tensor:
        return torch.tensor([[4, 4], [4, 4]])

    _target_sizes = _spatial_shapes

    def _pixel_position_ids(self, _: int) -> Tensor:
        rows, columns = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        return torch.stack((columns.reshape(-1), rows.reshape(-1)), -1).repeat(2, 1, 1)

    def _merge_sizes(self, _: int) -> Tensor:
        return torch.tensor([1, 1])

    def _aspect_ratio_ids(self, _: int) -> Tensor:
        return torch.ones(2, 1, dtype=torch.long)

    def _aspect_ratio_mask(self, _: int) -> Tensor:
        return torch.ones(2, 1, 4, dtype=torch.long)

    def _decoder_input_values(self, variant: int) -> Tensor:
        names = ("num_mel_bins", "hidden_size") if variant < 3 else ("hidden_size",)
        return self.noise(2, LENGTH, self._get(*names, default=32))

    def _encoder_hidden_states(self, _: int) -> Tensor:
        size = self._get("encoder_hidden_size", "hidden_size", default=32)
        return self.noise(2, LENGTH, size)

    def _task_inputs(self, _: int) -> Tensor:
        return self.tokens(2, self._get("task_seq_len", default=77))

    def _bool_masked_pos(self, _: int) -> Tensor:
        tubes = self._get("num_frames", default=2) // self._get("tubelet_size", default=1)
        count = tubes * (self._size() // self._get("patch_size", default=8)) ** 2
        return (torch.arange(count) % 2 == 0).repeat(2, 1)

    def _qformer_input_ids(self, _: int) -> Tensor:
        return self.tokens(2, LENGTH)

    def _latents(self, _: int) -> Tensor:
        return self.noise(2, self._get("hidden_size", default=32), LENGTH)

    def _noise_embeds(self, _: int) -> Tensor:
        return self.noise(2, 4, self._get("hidden_size", default=32))

    def _context_hidden_states(self, _: int) -> Tensor:
        layers = len(self._get("target_layer_ids", default=[0]))
        return self.noise(2, LENGTH, layers * self._get("hidden_size", default=32))

    def _action_embeds(self, _: int) -> Tensor:
        return self.noise(2, 4, self._get("dit_hidden_size", "hidden_size", default=32))

    def _state(self, _: int) -> Tensor:
        return self.noise(2, self._get("max_state_dim", default=32))

    def _noise(self, _: int) -> Tensor:
        return self.noise(
            2, self._get("chunk_size", default=4), self._get("max_action_dim", default=32)
        )

    def _timestep(self, _: int) -> Tensor:
        return torch.tensor([0.3, 0.6])

    def _speaker_embeddings(self, _: int) -> Tensor:
        return self.noise(2, self._get("speaker_embedding_dim", default=512))

    def _classes_input_ids(self, _: int) -> Tensor:
        return self.tokens(4, LENGTH)

    def _classes_attention_mask(self, _: int) -> Tensor:
        return torch.ones(4, LENGTH, dtype=torch.long)

    def _classes_structure(self, _: int) -> Tensor:
        return torch.tensor([2, 2])

    _tasks_input_ids = _qformer_input_ids

    def _tasks_attention_mask(self, _: int) -> Tensor:
        return torch.ones(2, LENGTH, dtype=torch.long)
