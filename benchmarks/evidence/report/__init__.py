"""The results pages, written from logs alone: the same logs give the same bytes."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.evidence.report.heads import heads_page
from benchmarks.evidence.report.logs import read_logs
from benchmarks.evidence.report.longcontext import longcontext_page
from benchmarks.evidence.report.pretrained import pretrained_page
from benchmarks.evidence.report.readme import with_tables
from benchmarks.evidence.report.translation import translation_page
from benchmarks.evidence.runner import write_text
from benchmarks.evidence.workshop import ROOT

DOCS = ROOT / "docs" / "results"


def write_pages(results: Path, docs: Path = DOCS) -> list[Path]:
    """Write every page that there are logs for, with a folder of its figures; return the pages.

    A folder of figures is replaced as a whole, so that none is left that no page shows.
    """
    with TemporaryDirectory() as name:
        made = _write(results, Path(name))
        docs.mkdir(parents=True, exist_ok=True)
        for page in made:
            shutil.copyfile(page, docs / page.name)
            shutil.rmtree(docs / page.stem, ignore_errors=True)
            if page.with_suffix("").is_dir():
                shutil.copytree(page.with_suffix(""), docs / page.stem)
    return [docs / page.name for page in made]


def write_readme(results: Path, readme: Path = ROOT / "README.md") -> Path:
    """Update the tables of results in the README; return its path."""
    text = readme.read_text(encoding="utf-8")
    write_text(readme, with_tables(text, read_logs(results), results.parent))
    return readme


def _write(results: Path, docs: Path) -> list[Path]:
    logs = read_logs(results)
    earlier = results.parent
    pages = [
        longcontext_page(logs, docs, earlier / "longcontext"),
        heads_page(logs, docs, results),
        pretrained_page(logs, docs),
        translation_page(logs, docs, earlier / "translation"),
    ]
    return [page for page in pages if page is not None]
