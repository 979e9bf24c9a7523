"""Export of recordings to BertViz."""

import torch
from torch import Tensor

from adasparse.analysis.recording.storage import Recording


def to_bertviz(
    recording: Recording, *, sentence: int = 0, kind: str | None = None
) -> tuple[Tensor, ...]:
    """Return attention as BertViz takes it: a dense tensor ``(1, h, q, k)`` for each layer.

    ``bertviz.head_view(to_bertviz(recording), tokens)`` shows a model of one sequence, with
    ``tokens = recording.sentences[0].source.tokens``. For translation, what three calls give is
    BertViz's ``encoder_attention``, ``decoder_attention`` and ``cross_attention``.

    Args:
        recording: Recording of a model.
        sentence: Index of the sentence.
        kind: Kind of attention; the first that the model has if None.
    """
    kinds = recording.header.kinds
    kind = kinds[0] if kind is None else kind
    if kind not in kinds:
        raise ValueError(f"kind must be one of {kinds}; got {kind!r}.")
    if not 0 <= sentence < len(recording.sentences):
        raise ValueError(
            f"sentence must be from 0 to {len(recording.sentences) - 1}; got {sentence}."
        )
    layers = recording.sentences[sentence].attention[kind]
    return tuple(torch.from_numpy(layer.dense()).unsqueeze(0) for layer in layers)
