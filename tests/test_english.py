"""The library and its documentation use the vocabulary of the field."""

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
    for folder in ("src", "docs", "csrc"):
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
