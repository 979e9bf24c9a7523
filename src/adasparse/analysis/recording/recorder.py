"""Recording of the attention of a model, sentence by sentence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from adasparse.analysis.recording.attention_weights import BatchWeights, sparse_weights
from adasparse.analysis.recording.layer_weights import Array
from adasparse.analysis.recording.storage import SIDES, RecordedSentence, Recording
from adasparse.analysis.recording.watched_model import WatchedModel
from adasparse.analysis.tokens.reader import TokenReader
from adasparse.integrations.calls import AttentionCall

#: Texts longer than this many tokens keep the largest weights of each row only, unless told.
LONG, LONG_TOP = 1024, 64

Ids = list[int]


class Recorder:
    """Records the attention of one model in any number of sentences.

    Args:
        model: A model of transformers that takes tokens, sparse or not; it is not changed.
        tokenizer: Its tokenizer.
        name: Name of the model; the one it was loaded under if None.
        top: Number of weights to keep per row, the largest, which dense attention to
            long texts needs; ``"auto"`` keeps 64 of texts of more than 1,024 tokens and all of
            others, None all.
        max_length: Where to cut texts, in tokens; None is what the model can take.
        batch_tokens: Number of tokens, padding included, run at a time, unless a single
            sentence has more.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        *,
        name: str | None = None,
        top: int | Literal["auto"] | None = "auto",
        max_length: int | None = None,
        batch_tokens: int = 4096,
    ) -> None:
        if not (top in ("auto", None) or (isinstance(top, int) and top >= 1)):
            raise ValueError(f"top must be 'auto', None or at least 1; got {top!r}.")
        for key, value in (("max_length", max_length), ("batch_tokens", batch_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{key} must be at least 1; got {value}.")
        self.watched = WatchedModel(model)
        self.model = self.watched.model
        self.tokenizer = tokenizer
        self.reader = TokenReader(tokenizer)
        self.top = top
        self.max_length = _longest(model, tokenizer) if max_length is None else max_length
        self.batch_tokens = batch_tokens
        name = name or model.config.name_or_path or type(model).__name__
        self.header = self.watched.header(name)

    @property
    def is_translation(self) -> bool:
        """Whether the model reads one text and writes another."""
        return self.header.kind == "translation"

    def top_of(self, length: int) -> int | None:
        """Return how many weights are kept of rows of ``length`` keys."""
        if self.top == "auto":
            return LONG_TOP if length > LONG else None
        return self.top

    def sentences(
        self, source: Iterable[str], target: Iterable[str] | None = None
    ) -> Iterator[RecordedSentence]:
        """Record one sentence after the other; nothing is kept.

        Args:
            source: Texts that the model reads.
            target: For a translation model, what it is made to write.
        """
        for batch in self._batches(source, target):
            yield from self._record(batch)

    def _batches(
        self, source: Iterable[str], target: Iterable[str] | None
    ) -> Iterator[list["_Example"]]:
        """Group sentences, in order, into batches of limited size."""
        batch: list[_Example] = []
        longest = 0
        for example in self._examples(source, target):
            length = max(len(example.source), len(example.target or ()))
            if batch and max(longest, length) * (len(batch) + 1) > self.batch_tokens:
                yield batch
                batch, longest = [], 0
            batch.append(example)
            longest = max(longest, length)
        if batch:
            yield batch

    def _examples(
        self, source: Iterable[str], target: Iterable[str] | None
    ) -> Iterator["_Example"]:
        if self.is_translation != (target is not None):
            raise ValueError(
                "A translation model is recorded with targets, other models without; got "
                f"{'no targets' if target is None else 'targets'} for a model of kind "
                f"{self.header.kind!r}."
            )
        if target is None:
            for number, text in enumerate(source):
                yield _Example(number, text, None, self.encode(text), None, None)
            return
        start = self.start_token()
        for number, (text, translation) in enumerate(zip(source, target, strict=True)):
            written = self.encode(translation, is_target=True)
            read = [start, *written[:-1]]
            yield _Example(number, text, translation, self.encode(text), read, written)

    def encode(self, text: str, *, is_target: bool = False) -> Ids:
        """Return the ids of a text, cut where the model ends."""
        given = {"text_target": text} if is_target else {"text": text}
        ids = self.tokenizer(
            **given, truncation=self.max_length is not None, max_length=self.max_length
        )["input_ids"]
        if not len(ids):
            raise ValueError(f"A sentence must have at least one token; got {text!r}.")
        return [int(i) for i in ids]

    def start_token(self) -> int:
        """Return what the decoder reads first."""
        for config in (self.model.config, self.model.generation_config):
            for name in ("decoder_start_token_id", "bos_token_id"):
                found = getattr(config, name, None)
                if found is not None:
                    return int(found)
        raise ValueError(
            "The configuration of the model must have decoder_start_token_id or bos_token_id."
        )

    def _record(self, batch: list["_Example"]) -> list[RecordedSentence]:
        sources, source_mask = self.pad([example.source for example in batch])
        inputs = {"input_ids": sources}
        masks = {"source": source_mask}
        if not source_mask.all():
            inputs["attention_mask"] = source_mask.long()
        if self.is_translation:
            targets, target_mask = self.pad([example.target or [] for example in batch])
            masks["target"] = target_mask
            inputs["decoder_input_ids"] = targets
            inputs["decoder_attention_mask"] = target_mask.long()
        calls: dict[str, list[BatchWeights]] = {kind: [] for kind in self.header.kinds}

        def see(kind: str, call: AttentionCall) -> None:
            calls[kind].append(sparse_weights(call, top=self.top_of(call.key.shape[2])))

        with self.watched.watched(see):
            # Without the head on top: scores of every word of a vocabulary are not wanted.
            self.model.base_model(**inputs)
        found = {name: mask.cpu().numpy() for name, mask in masks.items()}
        return [self._sentence(i, example, calls, found) for i, example in enumerate(batch)]

    def _sentence(
        self,
        i: int,
        example: "_Example",
        calls: dict[str, list[BatchWeights]],
        masks: dict[str, Array],
    ) -> RecordedSentence:
        attention = {}
        for kind, layers in calls.items():
            sides = SIDES[kind] if self.is_translation else ("source", "source")
            queries, keys = (masks[side][i] for side in sides)
            attention[kind] = tuple(
                layer.sentence(i, queries=queries, keys=keys, is_causal=kind == "decoder")
                for layer in layers
            )
        return RecordedSentence(
            id=example.number,
            source_text=example.source_text,
            target_text=example.target_text,
            source=self.reader.read(example.source),
            target=None if example.target is None else self.reader.read(example.target),
            written=None if example.written is None else self.reader.read(example.written),
            attention=attention,
            top=self.top_of(max(map(len, (example.source, example.target or ())))),
        )

    def pad(self, rows: list[Ids], *, side: str = "right") -> tuple[Tensor, Tensor]:
        """Return ids ``(b, n)`` and a mask that is True for tokens."""
        pad = self.tokenizer.pad_token_id
        length = max(len(row) for row in rows)
        ids = np.full((len(rows), length), 0 if pad is None else pad, dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=bool)
        for i, row in enumerate(rows):
            at = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
            ids[i, at], mask[i, at] = row, True
        device = self.model.device
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


@dataclass(frozen=True)
class _Example:
    """A sentence before it is run."""

    number: int
    source_text: str
    target_text: str | None
    source: Ids
    target: Ids | None
    written: Ids | None


def _longest(model: PreTrainedModel, tokenizer: Any) -> int | None:
    """Return how many tokens the model can take; None if nothing says so."""
    names = ("max_position_embeddings", "n_positions")
    found = [getattr(model.config, name, None) for name in names]
    limits = [x for x in (*found, tokenizer.model_max_length) if isinstance(x, int)]
    # A tokenizer that knows of no limit gives a number beyond all lengths.
    return min((x for x in limits if 0 < x < 10**9), default=None)


def record(
    model: PreTrainedModel,
    tokenizer: Any,
    source: Iterable[str],
    target: Iterable[str] | None = None,
    **options: Any,
) -> Recording:
    """Record the attention of a model in some sentences, all kept; ``Recorder`` streams.

    Args:
        model: As ``Recorder`` takes it.
        tokenizer: Its tokenizer.
        source: Texts that the model reads.
        target: For a translation model, what it is made to write.
        options: Options of ``Recorder``.
    """
    recorder = Recorder(model, tokenizer, **options)
    sentences = list(recorder.sentences(source, target))
    return Recording(header=recorder.header, sentences=sentences)
