"""Analysis of attention heads: recordings, measures, figures."""

try:
    import matplotlib as _matplotlib  # noqa: F401  # only to tell what is missing
    import transformers as _transformers  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"adasparse.analysis needs {error.name}: pip install 'adasparse[analysis]'.",
        name=error.name,
    ) from error

from adasparse._deprecated import moved_names
from adasparse.analysis import draw as draw  # deprecated, as measure is
from adasparse.analysis import figures, measures
from adasparse.analysis import measure as measure
from adasparse.analysis.analyze import Analysis, analyze, analyze_folders
from adasparse.analysis.dispersion.measure import Dispersion, LengthDispersion, measure_dispersion
from adasparse.analysis.dispersion.statistics import HeadDispersion, Spread
from adasparse.analysis.explorer.notebook import show
from adasparse.analysis.explorer.page import ReportFigure, ReportTable, write_report
from adasparse.analysis.explorer.payload import MeasuredRun, build_payload
from adasparse.analysis.measures.collect import MeasureCollector, measure_heads
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.measures.roles import head_roles, summarize
from adasparse.analysis.recording.bertviz import to_bertviz
from adasparse.analysis.recording.generation import generated, record_generated
from adasparse.analysis.recording.layer_weights import LayerWeights, from_dense
from adasparse.analysis.recording.recorder import Recorder, record
from adasparse.analysis.recording.storage import (
    ModelHeader,
    RecordedSentence,
    Recording,
    load_recording,
    save_recording,
)
from adasparse.analysis.runs import Run, load_run
from adasparse.analysis.tokens.reader import TokenReader, TokenRow

__all__ = [
    "Analysis",
    "Dispersion",
    "HeadDispersion",
    "LayerWeights",
    "LengthDispersion",
    "MeasureCollector",
    "MeasuredRun",
    "Measures",
    "ModelHeader",
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
    "analyze_folders",
    "build_payload",
    "figures",
    "from_dense",
    "generated",
    "head_roles",
    "load_recording",
    "load_run",
    "measure_dispersion",
    "measure_heads",
    "measures",
    "record",
    "record_generated",
    "save_recording",
    "show",
    "summarize",
    "to_bertviz",
    "write_report",
]

__getattr__ = moved_names(
    __name__,
    {"Header": "adasparse.analysis:ModelHeader", "Meter": "adasparse.analysis:MeasureCollector"},
)
