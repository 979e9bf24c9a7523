"""See what heads do: record attention, measure it, draw it."""

try:
    import matplotlib as _matplotlib  # noqa: F401  # only to tell what is missing
    import transformers as _transformers  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"adasparse.analysis needs {error.name}: pip install 'adasparse[analysis]'.",
        name=error.name,
    ) from error

from adasparse.analysis import draw, measure
from adasparse.analysis.analyze import Analysis, analyze
from adasparse.analysis.bertviz import to_bertviz
from adasparse.analysis.dispersion import Dispersion, LengthDispersion, measure_dispersion
from adasparse.analysis.dispersion_sums import HeadDispersion, Spread
from adasparse.analysis.generated import generated, record_generated
from adasparse.analysis.meter import Measures, Meter, measure_heads
from adasparse.analysis.notebook import show
from adasparse.analysis.payload import MeasuredRun, build_payload
from adasparse.analysis.record import Recorder, record
from adasparse.analysis.recording import (
    Header,
    RecordedSentence,
    Recording,
    load_recording,
    save_recording,
)
from adasparse.analysis.report import ReportFigure, ReportTable, write_report
from adasparse.analysis.roles import head_roles, summarize
from adasparse.analysis.runs import Run, load_run
from adasparse.analysis.tokens import TokenReader, TokenRow
from adasparse.analysis.weights import LayerWeights, from_dense

__all__ = [
    "Analysis",
    "Dispersion",
    "HeadDispersion",
    "Header",
    "LayerWeights",
    "LengthDispersion",
    "MeasuredRun",
    "Measures",
    "Meter",
    "RecordedSentence",
    "Recorder",
    "Recording",
    "ReportFigure",
    "ReportTable",
    "Run",
    "Spread",
    "TokenReader",
    "TokenRow",
    "analyze",
    "build_payload",
    "draw",
    "from_dense",
    "generated",
    "head_roles",
    "load_recording",
    "load_run",
    "measure",
    "measure_dispersion",
    "measure_heads",
    "record",
    "record_generated",
    "save_recording",
    "show",
    "summarize",
    "to_bertviz",
    "write_report",
]
