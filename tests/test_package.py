import ast
import re
import subprocess
import sys
from pathlib import Path

import adasparse

ROOT = Path(__file__).parents[1]

#: Modules besides those of the standard library that ``import adasparse`` may load on top of torch
#: and numpy.
ALLOWED: set[str] = set()


def test_public_names():
    assert adasparse.__all__ == sorted(adasparse.__all__)
    assert all(hasattr(adasparse, name) for name in adasparse.__all__)
    assert adasparse.__version__


def test_import_needs_torch_and_numpy_alone():
    code = (
        "import sys; import torch, numpy; base = set(sys.modules); "
        "import adasparse; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - base} - {'adasparse'}))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    brought = set(ast.literal_eval(output)) - set(sys.stdlib_module_names)
    assert brought <= ALLOWED, sorted(brought - ALLOWED)


def test_files_agree_on_the_version():
    version = re.compile(r"^version(?: =|:) \"?([0-9.]+)\"?$", re.MULTILINE)
    found = {
        name: version.findall((ROOT / name).read_text())
        for name in ("pyproject.toml", "CITATION.cff")
    }
    assert set(map(tuple, found.values())) == {(adasparse.__version__,)}, found


def test_published_figures_name_released_versions():
    released = re.findall(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    signed = {
        (page.name, version)
        for page in pages
        for version in re.findall(r"\bv:([0-9][0-9.]*[0-9])\b", page.read_text())
    }
    assert signed, "no signature was found"
    assert {version for _, version in signed} <= {*released, adasparse.__version__}, signed


def test_citation_lists_every_paper():
    paper = re.compile(r"arxiv\.org/abs/([0-9.]+[0-9])")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    cited = {x for page in pages for x in paper.findall(page.read_text(encoding="utf-8"))}
    assert cited <= set(paper.findall((ROOT / "CITATION.cff").read_text(encoding="utf-8")))
