"""See what heads do: record attention, measure it, draw it."""

try:
    import matplotlib as _matplotlib  # noqa: F401  # only to tell what is missing
    import transformers as _transformers  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"adasparse.analysis needs {error.name}: pip install 'adasparse[analysis]'.",
        name=error.name,
    ) from error

from adasparse.analysis.generated import generated, record_generated
from adasparse.analysis.record import Recorder, record
from adasparse.analysis.recording import (
    Header,
    RecordedSentence,
    Recording,
    load_recording,
    save_recording,
)
from adasparse.analysis.tokens import TokenReader, TokenRow
from adasparse.analysis.weights import LayerWeights, from_dense

__all__ = [
    "Header",
    "LayerWeights",
    "RecordedSentence",
    "Recorder",
    "Recording",
    "TokenReader",
    "TokenRow",
    "from_dense",
    "generated",
    "load_recording",
    "record",
    "record_generated",
    "save_recording",
]
