"""The library and its documentation use the vocabulary of the field."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Phrases to avoid, and the usual term for each.
AVOIDED = {
    "gradient by": "gradient with respect to",
    "gradients by": "gradients with respect to",
    "known function": "baseline",
    "goes on": "resumes, continues",
    "go on with": "continue with",
}


def texts():
    yield ROOT / "README.md"
    for folder in ("src", "docs", "csrc", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".h", ".cpp", ".html", ".js", ".css"}:
                yield path


@pytest.mark.parametrize("phrase", AVOIDED)
def test_prose_says_it_in_the_terms_of_the_field(phrase):
    pattern = re.compile(r"\b" + phrase.replace(" ", r"\s+(?:(?:#|//|\*)\s*)?") + r"\b", re.I)
    found = [
        f"{path.relative_to(ROOT)}: {match.group()!r}"
        for path in texts()
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"say {AVOIDED[phrase]!r} instead"


def headlines(path):
    """First lines of the docstrings of a file, with their line numbers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield getattr(node, "lineno", 1), docstring.splitlines()[0]


def test_headlines_name_the_thing():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in texts()
        if path.suffix == ".py"
        for line, text in headlines(path)
        if re.match(r"(what|how|which)\b", text, re.I)
    ]
    assert not found, "begin docstrings with a noun or a verb"
