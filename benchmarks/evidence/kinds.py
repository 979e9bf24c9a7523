"""Kinds of pieces by name."""

from benchmarks.evidence.models import pretrained
from benchmarks.evidence.runner import Kind
from benchmarks.evidence.tasks import task

KINDS: dict[str, Kind] = {"task": task, "pretrained": pretrained}
