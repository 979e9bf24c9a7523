"""Writers of ``.npy`` files that grow, for token ids that do not fit into memory."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["ArrayWriter", "RaggedWriter"]


class ArrayWriter:
    """A one-dimensional ``.npy`` file that grows; its header is right once it is closed."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self._file, self._dtype, self._length = path.open("wb"), dtype, 0
        self._write_header()
        self._start = self._file.tell()

    def _write_header(self) -> None:
        header = {
            "descr": npy.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length,),
        }
        npy.write_array_header_1_0(self._file, header)

    def append(self, values: NDArray[np.integer]) -> None:
        """Add values at the end."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self._length += len(values)

    def close(self) -> None:
        """Write the length into the header."""
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._start, "numpy leaves room for the length to grow"
        self._file.close()


class RaggedWriter:
    """Rows of token ids in ``<stem>.ids.npy``, and where each begins in ``<stem>.offsets.npy``.

    Args:
        stem: Path without the endings.
        vocab_size: Ids are below it; two bytes hold each if it is at most 65536, else four.
    """

    def __init__(self, stem: Path, *, vocab_size: int) -> None:
        width = np.uint16 if vocab_size <= 1 << 16 else np.uint32
        self._ids = ArrayWriter(stem.with_name(f"{stem.name}.ids.npy"), np.dtype(width))
        self._offsets = ArrayWriter(stem.with_name(f"{stem.name}.offsets.npy"), np.dtype(np.int64))
        self._offsets.append(np.zeros(1, dtype=np.int64))
        self.num_tokens = 0

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        """Add rows at the end."""
        ends = self.num_tokens + np.cumsum([len(row) for row in rows], dtype=np.int64)
        self._ids.append(np.array([token for row in rows for token in row], dtype=np.int64))
        self._offsets.append(ends)
        self.num_tokens = int(ends[-1]) if len(ends) else self.num_tokens

    def __enter__(self) -> "RaggedWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ids.close()
        self._offsets.close()
