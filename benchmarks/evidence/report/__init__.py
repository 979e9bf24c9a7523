"""The results pages, written from logs alone: the same logs give the same bytes."""

from pathlib import Path

from benchmarks.evidence.report.heads import heads_page
from benchmarks.evidence.report.logs import read_logs
from benchmarks.evidence.report.longcontext import longcontext_page
from benchmarks.evidence.report.pretrained import pretrained_page
from benchmarks.evidence.report.translation import translation_page
from benchmarks.evidence.workshop import ROOT

DOCS = ROOT / "docs" / "results"


def write_pages(results: Path, docs: Path = DOCS) -> list[Path]:
    """Write every page that there are logs for; return their paths."""
    logs = read_logs(results)
    speed = results.parent / "longcontext" / "speed.json"
    pages = [
        longcontext_page(logs, docs, speed),
        heads_page(logs, docs, results),
        pretrained_page(logs, docs),
        translation_page(logs, docs, results.parent / "translation"),
    ]
    return [path for path in pages if path is not None]
