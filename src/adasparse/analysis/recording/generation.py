"""Recording of attention during generation, step by step along the chosen hypothesis."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from adasparse.analysis.recording.attention_weights import BatchWeights, sparse_weights
from adasparse.analysis.recording.layer_weights import Array, LayerWeights
from adasparse.analysis.recording.recorder import Ids, Recorder
from adasparse.analysis.recording.storage import RecordedSentence, Recording
from adasparse.integrations.calls import AttentionCall


def record_generated(
    model: PreTrainedModel,
    tokenizer: Any,
    source: Iterable[str],
    *,
    generation: dict[str, Any] | None = None,
    **options: Any,
) -> Recording:
    """Have a model write, and record its attention, all kept.

    Args:
        model: A translation or decoder-only model, as ``Recorder`` takes it.
        tokenizer: Its tokenizer.
        source: Texts to translate, or to continue.
        generation: Options of ``generate``, such as ``num_beams``.
        options: Options of ``Recorder``.
    """
    recorder = Recorder(model, tokenizer, **options)
    sentences = list(generated(recorder, source, generation=generation))
    return Recording(header=recorder.header, sentences=sentences)


def generated(
    recorder: Recorder,
    source: Iterable[str],
    *,
    generation: dict[str, Any] | None = None,
    batch_size: int = 16,
) -> Iterator[RecordedSentence]:
    """Have the model write; record one sentence after the other.

    Attention is that of the steps of ``generate`` themselves; of several beams, that of the
    hypothesis that was chosen in the end. The last token is written and never read, so it has no
    row.

    Args:
        recorder: Recorder of a translation or decoder-only model.
        source: Texts that the model reads.
        generation: Options of ``generate``.
        batch_size: Number of sentences run at a time.
    """
    generation = dict(generation or {})
    if recorder.header.kind == "encoder":
        raise ValueError("A translation or decoder-only model can write; got an encoder.")
    if generation.get("num_return_sequences", 1) != 1:
        raise ValueError(
            "One text is recorded for each source; got "
            f"num_return_sequences={generation['num_return_sequences']}."
        )
    batch: list[tuple[int, str]] = []
    for item in enumerate(source):
        batch.append(item)
        if len(batch) == batch_size:
            yield from _record(recorder, batch, generation)
            batch = []
    if batch:
        yield from _record(recorder, batch, generation)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Written:
    """Result of ``generate`` for one sentence: all tokens, and the batch row of each step."""

    ids: Ids
    rows: list[int]


def _record(
    recorder: Recorder, batch: list[tuple[int, str]], generation: dict[str, Any]
) -> Iterator[RecordedSentence]:
    encoded = [recorder.encode(text) for _, text in batch]
    side = "right" if recorder.is_translation else "left"
    ids, mask = recorder.pad(encoded, side=side)
    calls: dict[str, list[BatchWeights]] = {kind: [] for kind in recorder.header.kinds}

    def see(kind: str, call: AttentionCall) -> None:
        calls[kind].append(sparse_weights(call, top=recorder.top_of(call.key.shape[2])))

    with recorder.watched.watched(see):
        output = recorder.model.generate(
            input_ids=ids,
            attention_mask=mask.long(),
            **{**generation, "return_dict_in_generate": True},
        )
    prompt = 1 if recorder.is_translation else ids.shape[1]
    beams = output.get("beam_indices")
    ends = generation.get("eos_token_id", recorder.model.generation_config.eos_token_id)
    ends = set(ends) if isinstance(ends, list) else {ends}
    mask_rows = mask.cpu().numpy()
    for i, (number, text) in enumerate(batch):
        written = _written(i, output.sequences[i], beams, prompt, ends)
        yield _sentence(recorder, i, (number, text), encoded[i], written, calls, mask_rows)


def _written(
    i: int, sequence: Tensor, beams: Tensor | None, prompt: int, ends: set[int | None]
) -> _Written:
    """Find where the text of sentence i ends, and which row of the batch wrote each token."""
    ids = sequence.tolist()
    if beams is not None:
        rows = [int(row) for row in beams[i].tolist() if row >= 0]
        return _Written(ids=ids[: prompt + len(rows)], rows=rows)
    count = next(
        (j + 1 for j, token in enumerate(ids[prompt:]) if token in ends), len(ids) - prompt
    )
    return _Written(ids=ids[: prompt + count], rows=[i] * count)


def _sentence(
    recorder: Recorder,
    i: int,
    given: tuple[int, str],
    source: Ids,
    written: _Written,
    calls: dict[str, list[BatchWeights]],
    mask: Array,
) -> RecordedSentence:
    read = written.ids[:-1]
    is_translation = recorder.is_translation
    prompt = 1 if is_translation else mask.shape[1]
    if is_translation:
        own = {"encoder": mask[i], "decoder": np.ones(len(read), bool), "context": mask[i]}
    else:
        own = {"decoder": np.concatenate([mask[i], np.ones(len(read) - prompt, bool)])}
        read = read[prompt - len(source) :]  # without padding
    attention = {}
    for kind, keys in own.items():
        layers = len(recorder.header.modules[kind])
        if kind == "encoder":
            attention[kind] = tuple(
                call.sentence(i, queries=keys, keys=keys) for call in calls[kind]
            )
            continue
        attention[kind] = tuple(
            _stitched(calls[kind][layer::layers], written.rows, keys, prompt, kind)
            for layer in range(layers)
        )
    reader = recorder.reader
    new = written.ids[prompt:]
    return RecordedSentence(
        id=given[0],
        source_text=given[1],
        target_text=recorder.tokenizer.decode(new, skip_special_tokens=True),
        source=reader.read(source if is_translation else read),
        target=reader.read(read) if is_translation else None,
        written=reader.read(new) if is_translation else None,
        attention=attention,
        top=recorder.top_of(max(len(source), len(read))),
    )


def _stitched(
    steps: list[BatchWeights], rows: list[int], keys: Array, prompt: int, kind: str
) -> LayerWeights:
    """Put the steps of one layer together, each from its row of the batch."""
    parts: list[LayerWeights] = []
    for number, row in enumerate(rows):
        step = steps[number]
        queries = np.ones(step.shape[2], bool)
        seen = keys
        offset = 0
        if kind == "decoder":
            seen = keys[: prompt + number]
            offset = len(seen) - step.shape[3]  # caches of local attention forget the first keys
            if number == 0:
                queries = keys[:prompt]
        parts.append(step.sentence(row, queries=queries, keys=seen, offset=offset))
    h, k = parts[0].shape[0], int(keys.sum())
    starts = np.cumsum([0, *(part.shape[1] for part in parts)])
    q = int(starts[-1])
    placed = [
        part.head * q + part.query + start for part, start in zip(parts, starts, strict=False)
    ]
    supports = [part.used for part in parts] if any(p.support is not None for p in parts) else None
    return LayerWeights.from_entries(
        row=np.concatenate(placed),
        col=np.concatenate([part.col for part in parts]),
        value=np.concatenate([part.value for part in parts]),
        visible=np.concatenate([part.visible for part in parts]),
        shape=(h, q, k),
        is_causal=kind == "decoder",
        support=None if supports is None else np.concatenate(supports, axis=1).reshape(-1),
    )
