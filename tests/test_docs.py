"""Every block of code in the documentation runs, in order, page by page."""

import importlib
import re
from pathlib import Path

import pytest

import adasparse
from adasparse import analysis, demo, export, functional, kernels, longcontext, nn
from adasparse.analysis import figures, measures
from adasparse.compat import entmax
from adasparse.demo import grammar
from adasparse.integrations import huggingface

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_REFERENCE = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)
_MEMBER = re.compile(r"^ +- (\w+)$", re.MULTILINE)
#: Public names without an entry of their own, and why.
EXEMPT = {
    "adasparse": {
        "nn",  # a module, whose names have entries
    },
    "adasparse.demo.grammar": {
        "PAIRS",  # a table of what ``generate`` takes
    },
    "adasparse.longcontext": {
        "TASKS",  # a table of what ``find_task`` finds
    },
}
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


def documented_names():
    """Full paths in the ``:::`` lines of the reference, and of the members listed under them."""
    found = set()
    for page in (DOCS / "api").glob("*.md"):
        for name, options in _REFERENCE.findall(page.read_text()):
            found |= {name, *(f"{name}.{member}" for member in _MEMBER.findall(options))}
    return found


def whole_modules():
    """The modules of which the reference lists no members, and so shows all."""
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    return {name for name, options in _REFERENCE.findall(text) if not _MEMBER.search(options)}


@pytest.mark.parametrize(
    "module",
    [
        adasparse, analysis, demo, entmax, export, figures, functional, grammar, huggingface,
        kernels, longcontext, measures, nn,
    ],
    ids=lambda x: x.__name__,
)  # fmt: skip
def test_reference_has_every_public_name(module):
    # An object documented under one of its public paths need not be repeated under the others.
    if module.__name__ in whole_modules():
        return
    documented = [find(name) for name in documented_names()]
    exempt = EXEMPT.get(module.__name__, set())
    missing = {
        name
        for name in set(module.__all__) - exempt
        if not any(getattr(module, name) is x for x in documented)
    }
    assert not missing


@pytest.mark.parametrize("name", sorted(documented_names()))
def test_the_reference_names_what_exists(name):
    assert find(name) is not None


def find(path):
    """Return the object of a dotted path; an attribute of a package hides a module of its name."""
    parent, _, name = path.rpartition(".")
    if not parent:
        return importlib.import_module(path)
    found = find(parent)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)


def test_every_page_is_in_the_navigation():
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    assert all(str(page.relative_to(DOCS)) in navigation for page in PAGES)
