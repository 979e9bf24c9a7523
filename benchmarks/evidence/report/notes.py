"""Remarks on the pages that no log can make: what does not reproduce, and why we think so.

They are files without numbers, since numbers come from logs alone.
"""

from pathlib import Path

_FOLDER = Path(__file__).with_name("notes")


def notes(page: str) -> list[str]:
    """Return the lines of the remarks on a page, none if there is no file of its name."""
    path = _FOLDER / f"{page}.md"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8").strip()
    return [*text.splitlines(), ""]
