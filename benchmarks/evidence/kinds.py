"""Kinds of pieces by name."""

from benchmarks.evidence.heads import heads
from benchmarks.evidence.language import language
from benchmarks.evidence.models import pretrained
from benchmarks.evidence.runner import Kind
from benchmarks.evidence.tasks import task
from benchmarks.evidence.translations import translation

KINDS: dict[str, Kind] = {
    "heads": heads,
    "language": language,
    "pretrained": pretrained,
    "task": task,
    "translation": translation,
}
