"""Temporary limits on CPU threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def thread_limit(number: int | None) -> Iterator[None]:
    """Use that many threads while the block runs; None leaves the number as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
