"""Recordings of models: their data, and the file format."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from adasparse._files import write_with
from adasparse.analysis.recording.layer_weights import Array, LayerWeights
from adasparse.analysis.tokens.reader import TokenRow

FORMAT, VERSION = "adasparse-recording", 1
#: Sides of the queries and the keys of each kind of attention, in translation.
SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "context": ("target", "source"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSentence:
    """One sentence and all attention paid in it.

    Args:
        id: Its number in what was recorded, from 0 on.
        source_text: The text.
        target_text: The translation, or what was generated; None without one.
        source: Its tokens; for a model without an encoder, all that it read.
        target: Tokens read by the decoder of a translation model: query i reads token i. None for
            other models.
        written: The ids it wrote, or was given to write: token i + 1 of the translation.
        attention: The layers of each kind of attention.
        top: Number of weights kept per row, the largest; None is all.
    """

    id: int
    source_text: str
    target_text: str | None = None
    source: TokenRow
    target: TokenRow | None = None
    written: TokenRow | None = None
    attention: Mapping[str, tuple[LayerWeights, ...]]
    top: int | None = None

    def tokens(self, kind: str) -> tuple[TokenRow, TokenRow]:
        """Return the tokens that the queries and the keys of attention of ``kind`` are."""
        if self.target is None:
            return self.source, self.source
        sides = {"source": self.source, "target": self.target}
        query, key = SIDES[kind]
        return sides[query], sides[key]


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelHeader:
    """Description of a model: its kinds of attention, modules and exponents.

    Args:
        name: Name of the model.
        kind: ``"translation"``, ``"encoder"`` or ``"decoder"``.
        modules: Names of the attention modules of each kind of attention, by layer.
        alpha: ``(h,)`` for each of them; 1 is softmax.
        attention: ``"softmax"``, ``"entmax"`` for a fixed alpha, ``"adaptive"`` for a learned one,
            ``"annealed"``.
    """

    name: str
    kind: str
    modules: Mapping[str, tuple[str, ...]]
    alpha: Mapping[str, tuple[tuple[float, ...], ...]]
    attention: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention that there are, in the order of ``SIDES``."""
        return tuple(kind for kind in SIDES if kind in self.modules)

    def size(self, kind: str) -> tuple[int, int]:
        """Return the number of layers, and the largest number of heads in any."""
        return len(self.alpha[kind]), max(len(heads) for heads in self.alpha[kind])


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """A model and the attention it paid in some sentences."""

    header: ModelHeader
    sentences: list[RecordedSentence] = field(default_factory=list)


def save_recording(path: str | Path, recording: Recording) -> None:
    """Write a recording into one safetensors file; what is there already is replaced at once."""
    arrays: dict[str, Array] = {}
    for kind in recording.header.kinds:
        for number in range(len(recording.header.modules[kind])):
            layers = [sentence.attention[kind][number] for sentence in recording.sentences]
            for name, array in _joined(layers).items():
                arrays[f"{kind}.{number}.{name}"] = array
    about = {
        "header": asdict(recording.header),
        "sentences": [_about(sentence) for sentence in recording.sentences],
    }
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "about": json.dumps(about, ensure_ascii=False),
    }
    write_with(path, lambda temporary: save_file(arrays, temporary, metadata), make_folders=True)


def _joined(layers: list[LayerWeights]) -> dict[str, Array]:
    """One layer of all sentences, end to end."""

    def join(parts: list[Array], dtype: Any) -> Array:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    joined = {
        "counts": join([layer.counts for layer in layers], np.int32),
        "col": join([layer.col for layer in layers], np.int32),
        "value": join([layer.value for layer in layers], np.float32),
        "visible": join([layer.visible for layer in layers], np.int32),
    }
    if any(layer.support is not None for layer in layers):
        joined["support"] = join([layer.used.reshape(-1) for layer in layers], np.int32)
    return joined


def _about(sentence: RecordedSentence) -> dict[str, Any]:
    rows = {name: getattr(sentence, name) for name in ("source", "target", "written")}
    return {
        "id": sentence.id,
        "source_text": sentence.source_text,
        "target_text": sentence.target_text,
        "top": sentence.top,
        **{name: None if row is None else asdict(row) for name, row in rows.items()},
    }


def load_recording(path: str | Path) -> Recording:
    """Read what ``save_recording`` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is something else, damaged, or of a later version.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"A recording is one file; there is none at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"{path} is a safetensors file, but not a recording of attention.")
            if int(metadata["version"]) > VERSION:
                raise ValueError(
                    f"Recordings up to version {VERSION} can be read; {path} is of version "
                    f"{metadata['version']}. Update adasparse."
                )
            about = json.loads(metadata["about"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} must be a safetensors file; reading it: {error}.") from error
    try:
        return _restored(about, arrays)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path} is damaged: {error!r}.") from error


def _restored(about: dict[str, Any], arrays: dict[str, Array]) -> Recording:
    given = about["header"]
    header = ModelHeader(
        **{
            **given,
            "modules": {kind: tuple(names) for kind, names in given["modules"].items()},
            "alpha": {
                kind: tuple(tuple(heads) for heads in layers)
                for kind, layers in given["alpha"].items()
            },
        }
    )
    blank = [_sentence(text, {}) for text in about["sentences"]]
    attention: list[dict[str, tuple[LayerWeights, ...]]] = [{} for _ in blank]
    for kind in header.kinds:
        layers = [
            _parted(
                blank,
                {
                    name.rpartition(".")[2]: array
                    for name, array in arrays.items()
                    if name.startswith(f"{kind}.{number}.")
                },
                kind,
                len(heads),
            )
            for number, heads in enumerate(header.alpha[kind])
        ]
        for i, found in enumerate(attention):
            found[kind] = tuple(layer[i] for layer in layers)
    sentences = [
        _sentence(text, found) for text, found in zip(about["sentences"], attention, strict=True)
    ]
    return Recording(header=header, sentences=sentences)


def _sentence(
    about: dict[str, Any], attention: dict[str, tuple[LayerWeights, ...]]
) -> RecordedSentence:
    rows = {
        name: None
        if about[name] is None
        else TokenRow(**{key: tuple(values) for key, values in about[name].items()})
        for name in ("source", "target", "written")
    }
    return RecordedSentence(**{**about, **rows, "attention": attention})


def _parted(
    sentences: list[RecordedSentence], arrays: dict[str, Array], kind: str, h: int
) -> list[LayerWeights]:
    """Undo ``_joined``."""
    layers = []
    row = query = entry = 0
    for sentence in sentences:
        queries, keys = sentence.tokens(kind)
        q, k = len(queries), len(keys)
        rows = slice(row, row + h * q)
        crow = np.concatenate([[0], np.cumsum(arrays["counts"][rows], dtype=np.int64)])
        entries = slice(entry, entry + int(crow[-1]))
        layers.append(
            LayerWeights(
                crow=crow,
                col=arrays["col"][entries],
                value=arrays["value"][entries],
                visible=arrays["visible"][query : query + q],
                shape=(h, q, k),
                is_causal=kind == "decoder",
                support=arrays["support"][rows] if "support" in arrays else None,
            )
        )
        row, query, entry = row + h * q, query + q, entries.stop
    if row != len(arrays["counts"]) or entry != len(arrays["col"]):
        raise IndexError(f"{len(arrays['counts'])} rows of {kind} attention, not {row}")
    return layers
