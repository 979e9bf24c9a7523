"""The data of the explorer: one dictionary that JSON can hold.

Everything the page shows is in it; the page computes nothing but pictures::

    {
      "version": 1,
      "title": str,
      "measures": [                       # what a head can be sorted by, in order of display
        {"key": str, "label": str, "help": str, "format": "percent" | "number" | "alpha"}
      ],
      "runs": [
        {
          "name": str,                    # unique in the payload
          "attention": str,               # "softmax", "entmax" (fixed), "adaptive" (learned), ...
          "kind": "translation" | "encoder" | "decoder",
          "top": int | null,              # weights measured of each row of long texts; null is all
          "sentences_measured": int,      # over how many sentences the values are
          "groups": [                     # one per kind of attention that the model has
            {
              "kind": "encoder" | "decoder" | "context",
              "queries": "source" | "target",   # which tokens of a sentence the rows are
              "keys": "source" | "target",      # which tokens the columns are
              "layers": int, "heads": int,
              "modules": [str per layer],
              "values": {key: [[number | null per head] per layer]},
              "intervals": {key: [[[low, high] | null per head] per layer]},
              "layer_values": {"diversity": [number | null per layer]},
              "layer_intervals": {"diversity": [[low, high] | null per layer]},
              "roles": [[[{"role": str, "evidence": str}] per head] per layer]
            }
          ],
          "summary": [str],               # sentences in plain words, with numbers
          "sentences": [
            {
              "id": int,                  # the same sentence has the same id in every run
              "source_text": str, "target_text": str | null,
              "source": [str],            # tokens
              "target": [str] | null,     # what the decoder reads; row i reads target[i] and
              "target_next": [str] | null,      # writes target_next[i]
              "top": int | null,          # weights kept of each row here; null is all
              "first": int | null,        # tokens kept of a long text; null is all
              "attention": {kind: [[head per head] per layer]}
            }
          ]
        }
      ]
    }

The weights of one head are a compressed matrix with a row for each query::

    {"crow": str, "col": str, "value": str, "col_type": "uint16" | "uint32"}

``crow`` is little-endian uint32, one more than there are rows: entries ``crow[i]`` to
``crow[i + 1]`` are row i. ``col`` is the key of each entry, rising within a row, of ``col_type``.
``value`` is uint16: the weight times 65535, rounded, and at least 1. All are base64. What has no
entry is exactly zero, or, where ``top`` is a number, may be one of the smaller weights of its row.

Layers and heads are counted from 0 here and from 1 in texts. A number that is not defined, such as
the interrogation score where there is no question, is null. Intervals are 95% confidence intervals
by bootstrap over sentences.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adasparse.analysis.measures.registry import DIVERSITY, MEASURES
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.measures.roles import head_roles, summarize
from adasparse.analysis.recording.layer_weights import Array, LayerWeights
from adasparse.analysis.recording.storage import SIDES, RecordedSentence

#: Version of this format, which the page checks.
PAYLOAD_VERSION = 1
#: Numbers of weights per row, tried one after the other for a sentence that is too large.
_TOPS = (64, 32, 16, 8, 4, 2, 1)
#: Numbers of first tokens, tried after these.
_FIRSTS = (1024, 512, 256, 128, 64, 32, 16)
#: Characters of a text at most.
_MOST_CHARACTERS = 10_000

Payload = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRun:
    """The part of one model in the explorer.

    Args:
        measures: Measures over all sentences.
        sentences: Recorded sentences, the most interesting first.
    """

    measures: Measures
    sentences: Sequence[RecordedSentence]


def build_payload(
    runs: Sequence[MeasuredRun], *, title: str, max_bytes: int = 3_000_000
) -> Payload:
    """Return the data of the explorer, as described above.

    Args:
        runs: Measured runs, all with the same sentences.
        title: Title of the page.
        max_bytes: Sentences that would take more are left out; of a first one that takes more, only
            the largest weights of each row are kept, then only its first tokens.
    """
    names = [run.measures.header.name for run in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"Runs must have different names; got {names}.")
    return {
        "version": PAYLOAD_VERSION,
        "title": title,
        "measures": [
            {"key": info.key, "label": info.label, "help": info.help, "format": info.format}
            for info in MEASURES
        ],
        "runs": [
            {**run_payload(run.measures), "sentences": sentences}
            for run, sentences in zip(runs, _that_fit(runs, max_bytes), strict=True)
        ],
    }


def run_payload(measures: Measures) -> Payload:
    """Return what there is about one run, without sentences."""
    header = measures.header
    return {
        "name": header.name,
        "attention": header.attention,
        "kind": header.kind,
        "top": measures.top,
        "sentences_measured": measures.num_sentences,
        "groups": [_group(measures, kind) for kind in header.kinds],
        "summary": summarize(measures),
    }


def _group(measures: Measures, kind: str) -> Payload:
    header = measures.header
    layers, heads = header.size(kind)
    queries, keys = SIDES[kind] if header.kind == "translation" else ("source", "source")
    roles: list[list[list[dict[str, str]]]] = [[[] for _ in row] for row in header.alpha[kind]]
    for found in head_roles(measures):
        if found.kind == kind:
            role = {"role": found.role.role, "evidence": found.role.evidence}
            roles[found.layer][found.head].append(role)
    keys_shown = [info.key for info in MEASURES if kind in info.kinds]
    return {
        "kind": kind,
        "queries": queries,
        "keys": keys,
        "layers": layers,
        "heads": heads,
        "modules": list(header.modules[kind]),
        "values": {key: _numbers(measures.values(kind, key)) for key in keys_shown},
        "intervals": {key: _pairs(measures.intervals(kind, key)) for key in keys_shown},
        "layer_values": {DIVERSITY: _numbers(measures.values(kind, DIVERSITY)[:, 0])},
        "layer_intervals": {DIVERSITY: _pairs(measures.intervals(kind, DIVERSITY)[:, 0])},
        "roles": roles,
    }


def _numbers(values: Array) -> list[Any]:
    """Return nested lists of six digits, with None for NaN."""
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in values]


def _pairs(values: Array) -> list[Any]:
    """Return nested lists of pairs, with None for those that are not defined."""
    if values.ndim > 2:
        return [_pairs(row) for row in values]
    return [None if None in pair else pair for pair in _numbers(values)]


def _that_fit(runs: Sequence[MeasuredRun], max_bytes: int) -> list[list[Payload]]:
    """Return the sentences of each run that fit, in order."""
    found: list[list[Payload]] = [[] for _ in runs]
    used = 0
    for same in zip(*(run.sentences for run in runs), strict=True):
        made = [sentence_payload(sentence) for sentence in same]
        size = _size(made)
        if used + size > max_bytes and not used:
            smaller = [(top, None) for top in _TOPS] + [(1, first) for first in _FIRSTS]
            for top, first in smaller:
                made = [sentence_payload(sentence, top=top, first=first) for sentence in same]
                size = _size(made)
                if size <= max_bytes:
                    break
        elif used + size > max_bytes:
            continue
        used += size
        for sentences, sentence in zip(found, made, strict=True):
            sentences.append(sentence)
    return found


def _size(made: list[Payload]) -> int:
    return sum(len(json.dumps(sentence)) for sentence in made)


def sentence_payload(
    sentence: RecordedSentence, *, top: int | None = None, first: int | None = None
) -> Payload:
    """Return a sentence with its attention.

    Args:
        sentence: Recorded sentence.
        top: Number of weights to keep per row, the largest; all if None.
        first: Number of tokens to keep, of source and target each; all if None.
    """
    tops = [x for x in (top, sentence.top) if x is not None]
    target, written = sentence.target, sentence.written
    longest = max(len(sentence.source), len(target or ()))
    return {
        "id": sentence.id,
        "source_text": _short(sentence.source_text),
        "target_text": None if sentence.target_text is None else _short(sentence.target_text),
        "source": list(sentence.source.tokens[:first]),
        "target": None if target is None else list(target.tokens[:first]),
        "target_next": None if written is None else list(written.tokens[:first]),
        "top": min(tops, default=None),
        "first": first if first is not None and first < longest else None,
        "attention": {
            kind: [
                [_head(layer.of_head(head), top) for head in range(layer.shape[0])]
                for layer in (x if first is None else x.first(first) for x in layers)
            ]
            for kind, layers in sentence.attention.items()
        },
    }


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " …"


def _head(head: LayerWeights, top: int | None) -> dict[str, str]:
    head = head if top is None else head.largest(top)
    col_type = "uint16" if head.shape[2] <= 2**16 else "uint32"
    value = np.rint(head.value * 65535.0).clip(1, 65535)
    return {
        "crow": _base64(head.crow, "<u4"),
        "col": _base64(head.col, "<u2" if col_type == "uint16" else "<u4"),
        "value": _base64(value, "<u2"),
        "col_type": col_type,
    }


def _base64(array: Array, dtype: str) -> str:
    return base64.b64encode(array.astype(dtype).tobytes()).decode()
