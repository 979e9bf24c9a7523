"""Every block of code in the documentation runs, in order, page by page."""

import re
from pathlib import Path

import pytest

import adasparse
from adasparse import analysis, longcontext, nn
from adasparse.integrations import huggingface

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [code for found, code in _BLOCK.findall(page.read_text()) if found == language]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_code_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page.stem}
    for i, code in enumerate(blocks(page, "python"), start=1):
        exec(compile(code, f"{page.name}, block {i}", "exec"), namespace)
    output = capsys.readouterr().out
    for shown in blocks(page, "text"):
        assert shown in output


def test_reference_has_every_public_name():
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    for module in (adasparse, analysis, longcontext, nn, huggingface):
        missing = [
            name for name in module.__all__ if name not in ("nn", "sparsemax") and name not in text
        ]
        assert not missing, module.__name__


def test_every_page_is_in_the_navigation():
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    assert all(str(page.relative_to(DOCS)) in navigation for page in PAGES)
