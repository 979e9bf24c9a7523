"""A small payload of the explorer, recorded from random models."""

from typing import Any

from adasparse.analysis import Recording, record
from adasparse.analysis.explorer.payload import MeasuredRun, build_payload
from adasparse.analysis.measures.collect import measure_heads
from support.sample_models import SOURCE, TARGET, TRANSLATION, dense, sparse, tokenizer


def sample_recordings(name: str = "marian") -> list[Recording]:
    """The same sentences through a softmax and a sparse model."""
    target = TARGET if name in TRANSLATION else None
    models = {"softmax": dense(name), "entmax": sparse(name)}
    return [
        record(model, tokenizer(), SOURCE, target, name=label) for label, model in models.items()
    ]


def sample_payload(name: str = "marian", **options: Any) -> dict[str, Any]:
    """A payload of two runs of a translation, decoder-only (``llama``) or ``bert`` model."""
    runs = [
        MeasuredRun(measures=measure_heads(recording, resamples=50), sentences=recording.sentences)
        for recording in sample_recordings(name)
    ]
    return build_payload(runs, title="Sample", **options)
