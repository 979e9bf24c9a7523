"""Keys that are prepared once and attended to many times."""

import math

import torch
from torch import Tensor

from adasparse.functional.arguments import DTYPES
from adasparse.functional.growing import GrowingRows, select_batch
from adasparse.kernels.cpu.codes import PANEL, can_code, code_keys, empty_codes
from adasparse.kernels.problem import NO_CODES


class PackedKeys:
    """Keys for many calls of ``entmax_attention``, which takes them in place of ``key``.

    Beside the keys, it holds int8 codes of them with bounds of their error. On CPUs with int8 dot
    products (AVX-512 VNNI, AVX-VNNI) few queries then read a quarter of the bytes: codes first, and
    the keys themselves only where they can have weight. The output is that of plain keys, bit for
    bit. Elsewhere, and for what codes do not support (float64, an alpha near 1, many queries), the
    keys are used as they are.

    For inference: no gradients flow through packed keys, nor past them.

    Args:
        key: ``(..., h, k, d)``; copied.

    Example:
        >>> import torch
        >>> from adasparse import PackedKeys, entmax_attention
        >>> keys, values = torch.randn(2, 8, 1000, 64), torch.randn(2, 8, 1001, 64)
        >>> packed = PackedKeys(keys)
        >>> packed.append(torch.randn(2, 8, 1, 64))
        >>> len(packed)
        1001
        >>> entmax_attention(torch.randn(2, 8, 1, 64), packed, values).shape
        torch.Size([2, 8, 1, 64])
    """

    def __init__(self, key: Tensor) -> None:
        _check_keys("key", key)
        self._lead: tuple[int, ...] = tuple(key.shape[:-2])
        self.dtype = key.dtype
        self._is_coded = key.dtype != torch.float64 and can_code(key.device)
        self._keys = GrowingRows(self._as_rows(key), dtype=key.dtype)
        self._codes: Tensor | None = None
        self._bounds: Tensor | None = None
        self._code(0)

    @property
    def shape(self) -> torch.Size:
        """Shape ``(..., h, k, d)`` of the keys."""
        return torch.Size((*self._lead, len(self), self._keys.rows().shape[-1]))

    @property
    def device(self) -> torch.device:
        """Device of the keys."""
        return self._keys.rows().device

    @property
    def is_coded(self) -> bool:
        """Whether there are int8 codes, which only some processors make use of."""
        return self._is_coded

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self._lead) + 2

    def size(self, dim: int) -> int:
        """Return the size of a dimension."""
        return self.shape[dim]

    def __len__(self) -> int:
        """Return the number of keys of each head."""
        return self._keys.length

    def __repr__(self) -> str:
        return f"PackedKeys(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device})"

    def to_dense(self) -> Tensor:
        """Return a view of the keys ``(..., h, k, d)``; do not write to them."""
        rows = self._keys.rows()
        return rows if len(self._lead) == 2 else rows.reshape(self.shape)

    def codes(self, batch: int, groups: int) -> dict[str, Tensor | None]:
        """Return the fields of ``AttentionProblem`` for keys expanded to ``(b, g, k, d)``."""
        codes, bounds = self._codes, self._bounds
        if codes is None or bounds is None:
            return dict(NO_CODES)
        own_batch, own_groups = codes.shape[:2]
        if own_batch not in (1, batch) or own_groups not in (1, groups):
            return dict(NO_CODES)
        if (own_batch, own_groups) != (batch, groups):
            codes, bounds = (x.expand(batch, groups, -1, -1) for x in (codes, bounds))
        return {"codes": codes, "code_bounds": bounds}

    def append(self, key: Tensor) -> None:
        """Add keys ``(..., h, n, d)`` at the end, in place; memory grows ahead of need."""
        _check_keys("key", key)
        expected = (*self._lead, key.shape[-2], self.shape[-1])
        if tuple(key.shape) != expected or (key.dtype, key.device) != (self.dtype, self.device):
            raise ValueError(
                f"keys to append must have the shape (*{self._lead}, n, {expected[-1]}), "
                f"{self.dtype} and the device {self.device}; "
                f"got {tuple(key.shape)}, {key.dtype} and {key.device}."
            )
        before = len(self)
        self._keys.append(self._as_rows(key))
        self._code(before)

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` keys of each head, in place."""
        if not 0 <= length <= len(self):
            raise ValueError(f"length must be from 0 to {len(self)}; got {length}.")
        self._keys.truncate(length)
        if length % PANEL:
            self._code(length - 1)  # keys beyond have shaped the codes of its panel

    def reorder(self, indices: Tensor) -> None:
        """Take these sequences of the batch ``(b, h, k, d)``, in place, as beams change places.

        Args:
            indices: ``(n,)`` in int64; some may be repeated, some left out.
        """
        if len(self._lead) != 2:
            raise ValueError(
                f"only keys (b, h, k, d) have sequences to reorder; got {tuple(self.shape)}."
            )
        self._keys.reorder(indices)
        if self._codes is not None and self._bounds is not None:
            self._codes = select_batch(self._codes, indices)
            self._bounds = select_batch(self._bounds, indices)
        self._lead = (len(indices), self._lead[1])

    def repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence of the batch so many times, in place."""
        batch = torch.arange(self._lead[0], device=self.device)
        self.reorder(batch.repeat_interleave(repeats))

    def _as_rows(self, key: Tensor) -> Tensor:
        """Return keys as ``(b, h, n, d)``."""
        inner = (1,) * (3 - key.dim()) + tuple(key.shape[-3:])
        return key.detach().reshape(math.prod(key.shape[:-3]), *inner)

    def _code(self, first: int) -> None:
        """Bring the codes of keys from ``first`` on up to date."""
        if not self._is_coded:
            return
        batch, heads, room, width = self._keys.room()
        codes, bounds = self._codes, self._bounds
        if codes is None or bounds is None or codes.shape[2] * PANEL < room:
            with torch.inference_mode(False), torch.no_grad():
                self._codes, self._bounds = empty_codes(batch, heads, room, width)
                if codes is not None and bounds is not None:
                    panels = first // PANEL
                    self._codes[:, :, :panels] = codes[:, :, :panels]
                    self._bounds[..., :panels] = bounds[..., :panels]
        if first < len(self):
            assert self._codes is not None and self._bounds is not None
            code_keys(self._keys.rows(), self._codes, self._bounds, first=first)


def _check_keys(name: str, key: Tensor) -> None:
    if not isinstance(key, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(key).__name__}.")
    if key.dtype not in DTYPES:
        raise TypeError(f"{name} must be float32, float64, bfloat16 or float16; got {key.dtype}.")
    if key.dim() < 2:
        raise ValueError(f"{name} must have the shape (..., k, d); got {tuple(key.shape)}.")
    if key.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            "packed keys carry no gradients, and key requires them. Pack key.detach(), or work "
            "under torch.no_grad()."
        )
