"""Rows that grow at the end, in memory that is allocated ahead of need."""

import math

import torch
from torch import Tensor

#: Room is made for this many times the rows that there was room for.
GROWTH = 1.5


class GrowingRows:
    """Rows ``(b, h, n, d)`` that are appended to in place.

    Args:
        rows: ``(b, h, n, d)``; copied.
        dtype: Dtype to keep them in; that of ``rows`` if None.
    """

    def __init__(self, rows: Tensor, *, dtype: torch.dtype | None = None) -> None:
        batch, heads, n, width = rows.shape
        self.length = 0
        self._rows = _allocate((batch, heads, n, width), dtype or rows.dtype, rows.device)
        self.append(rows)

    def rows(self) -> Tensor:
        """Return a view of all rows."""
        return self._rows[:, :, : self.length]

    def room(self) -> torch.Size:
        """Return the shape ``(b, h, n, d)`` of all rows that there is memory for."""
        return self._rows.shape

    def append(self, rows: Tensor) -> None:
        """Add rows ``(b, h, n, d)`` at the end."""
        batch, heads, room, width = self._rows.shape
        after = self.length + rows.shape[2]
        with torch.no_grad():
            if after > room:
                kept = self.rows()
                shape = (batch, heads, max(after, math.ceil(GROWTH * room)), width)
                self._rows = _allocate(shape, self._rows.dtype, self._rows.device)
                self._rows[:, :, : self.length] = kept
            self._rows[:, :, self.length : after] = rows
        self.length = after

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` rows."""
        self.length = length

    def reorder(self, indices: Tensor) -> None:
        """Take these sequences of the batch, ``(n,)``."""
        self._rows = select_batch(self._rows, indices)


def _allocate(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Tensors of inference mode could not be written to outside of it.
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=device)


def select_batch(x: Tensor, indices: Tensor) -> Tensor:
    """Return some indices of the first dimension, as an ordinary tensor in any mode."""
    with torch.inference_mode(False), torch.no_grad():
        indices = indices.to(x.device)
        return x.index_select(0, indices.clone() if indices.is_inference() else indices)
