"""Disks that take no more: a real limit of the operating system."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

resource = pytest.importorskip("resource", reason="a module of Unix")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let writing beyond so many bytes of a file fail while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
