"""OPUS-MT models out of CTranslate2 files, as models of transformers.

A file of CTranslate2 is a header and a list of named arrays, little-endian: names and the header's
strings have their length before them, arrays their shape, type and size in bytes. Weights of int8
have a scale for each row. Self-attention has query, key and value in one matrix, attention to the
source key and value.
"""

import json
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_POSITIONS = 512


class _Reader:
    """Numbers and strings of a binary file, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def number(self, kind: str) -> int:
        value: int = struct.unpack_from(f"<{kind}", self.data, self.place)[0]
        self.place += struct.calcsize(f"<{kind}")
        return value

    def text(self) -> str:
        size = self.number("H")
        self.place += size
        return self.data[self.place - size : self.place].rstrip(b"\0").decode()

    def array(self) -> NDArray[Any]:
        shape = [self.number("I") for _ in range(self.number("B"))]
        kind = np.dtype(_TYPES[self.number("B")])
        size = self.number("I")
        self.place += size
        values = np.frombuffer(self.data, kind, size // kind.itemsize, self.place - size)
        return values.reshape(shape)


def read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a ``model.bin`` by name."""
    reader = _Reader(data)
    reader.number("I")  # version of the format
    reader.text()  # name of the architecture
    reader.number("I")  # its revision
    return {reader.text(): reader.array() for _ in range(reader.number("I"))}


class _Weights:
    """Matrices and vectors of a model in float32."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self.arrays = arrays

    def linear(self, name: str, part: slice = slice(None)) -> Iterator[tuple[str, Tensor]]:
        yield "weight", self.matrix(name)[part]
        yield "bias", self.vector(f"{name}/bias")[part]

    def norm(self, name: str) -> Iterator[tuple[str, Tensor]]:
        yield "weight", self.vector(f"{name}/gamma")
        yield "bias", self.vector(f"{name}/beta")

    def matrix(self, name: str) -> Tensor:
        scale = self.vector(f"{name}/weight_scale")
        return self.vector(f"{name}/weight") / scale[:, None]

    def vector(self, name: str) -> Tensor:
        return torch.from_numpy(self.arrays[name].astype(np.float32))


def read_marian(archive: Path) -> tuple[MarianMTModel, list[str], bytes]:
    """Return model, vocabulary and SentencePiece file of an Argos archive of OPUS-MT."""
    with zipfile.ZipFile(archive) as files:
        binary = next(name for name in files.namelist() if name.endswith("model/model.bin"))
        folder = binary.removesuffix("model/model.bin")
        arrays = read_arrays(files.read(binary))
        vocabulary = json.loads(files.read(f"{folder}model/shared_vocabulary.json"))
        pieces = files.read(f"{folder}sentencepiece.model")
    weights = _Weights(arrays)
    config = _config(arrays, vocabulary)
    model = MarianMTModel(config).eval()
    found = model.load_state_dict(_state(weights, config), strict=False)
    if found.unexpected_keys or found.missing_keys:
        raise ValueError(f"The weights must be those of a Marian model; got {found}.")
    model.tie_weights()
    return model, vocabulary, pieces


def _config(arrays: dict[str, NDArray[Any]], vocabulary: list[str]) -> MarianConfig:
    """Padding is a token of its own, after those of the vocabulary; it also starts decoding."""
    layers = {
        side: 1 + max(int(x.split("/")[1][6:]) for x in arrays if x.startswith(f"{side}/layer_"))
        for side in ("encoder", "decoder")
    }
    padding, end = len(vocabulary), vocabulary.index("</s>")
    ffn, width = arrays["encoder/layer_0/ffn/linear_0/weight"].shape
    heads = int(arrays["encoder/num_heads"])
    return MarianConfig(
        vocab_size=padding + 1,
        d_model=width,
        encoder_layers=layers["encoder"],
        decoder_layers=layers["decoder"],
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=_POSITIONS,
        pad_token_id=padding,
        eos_token_id=end,
        decoder_start_token_id=padding,
        bos_token_id=None,
        forced_eos_token_id=None,
        bad_words_ids=[[padding]],
    )


def _state(weights: _Weights, config: MarianConfig) -> dict[str, Tensor]:
    """Return the weights by their names in transformers."""
    width = config.d_model
    padding = torch.zeros(1, width)
    shared = torch.cat((weights.matrix("decoder/embeddings"), padding))
    bias = torch.cat((weights.vector("decoder/projection/bias"), torch.zeros(1)))
    state = {"final_logits_bias": bias[None]}
    names = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    state |= {f"{name}.weight": shared for name in names}
    positions = weights.vector("decoder/position_encodings/encodings")[:_POSITIONS]
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = positions
        for i in range(getattr(config, f"{side}_layers")):
            for name, entries in _layer(weights, f"{side}/layer_{i}", width, side == "decoder"):
                for kind, value in entries:
                    state[f"model.{side}.layers.{i}.{name}.{kind}"] = value
    return state


def _layer(
    weights: _Weights, name: str, width: int, is_decoder: bool
) -> Iterator[tuple[str, Iterator[tuple[str, Tensor]]]]:
    """Yield the parts of a layer."""
    own = f"{name}/self_attention"
    for i, part in enumerate(("q_proj", "k_proj", "v_proj")):
        columns = slice(width * i, width * (i + 1))
        yield f"self_attn.{part}", weights.linear(f"{own}/linear_0", columns)
    yield "self_attn.out_proj", weights.linear(f"{own}/linear_1")
    yield "self_attn_layer_norm", weights.norm(f"{own}/layer_norm")
    if is_decoder:
        other = f"{name}/attention"
        yield "encoder_attn.q_proj", weights.linear(f"{other}/linear_0")
        yield "encoder_attn.k_proj", weights.linear(f"{other}/linear_1", slice(width))
        yield "encoder_attn.v_proj", weights.linear(f"{other}/linear_1", slice(width, None))
        yield "encoder_attn.out_proj", weights.linear(f"{other}/linear_2")
        yield "encoder_attn_layer_norm", weights.norm(f"{other}/layer_norm")
    yield "fc1", weights.linear(f"{name}/ffn/linear_0")
    yield "fc2", weights.linear(f"{name}/ffn/linear_1")
    yield "final_layer_norm", weights.norm(f"{name}/ffn/layer_norm")
