"""Files that are never half written."""

import os
from collections.abc import Callable
from pathlib import Path


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` fill a file of a temporary name, then rename it to ``path``.

    Folders on the way are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write text in UTF-8, or bytes."""
    data = content.encode() if isinstance(content, str) else content
    write_with(path, lambda temporary: temporary.write_bytes(data))
