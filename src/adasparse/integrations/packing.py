"""Packed batches of models: sequences one after another in one row, and the mask that says so."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map


def packed_matrix(
    offsets: Tensor,
    length: int,
    *,
    is_causal: bool,
    window: tuple[int | None, int | None] | None = None,
) -> Tensor:
    """Return the bool mask ``(1, 1, n, n)`` that a ``PackedMask`` stands for."""
    place = torch.arange(length, device=offsets.device)
    sequence = torch.bucketize(place, offsets[1:].to(place.dtype), right=True)
    distance = place.unsqueeze(-1) - place
    mask = sequence.unsqueeze(-1) == sequence
    if is_causal:
        mask = mask & (distance >= 0)
    left, right = window or (None, None)
    if left is not None:
        mask = mask & (distance <= left)
    if right is not None:
        mask = mask & (distance >= -right)
    return mask[None, None]


class PackedMask(Tensor):
    """The bool mask ``(1, 1, n, n)`` of a packed row, computed when an operation reads it.

    Attention that knows sequences by their offsets never does. A query sees the keys of its own
    sequence, up to its own position if causal, within the window.

    Args:
        offsets: Where sequences begin ``(sequences + 1,)``, and the end ``n``.
        is_causal: Whether later keys are masked.
        window: Sliding window ``(left, right)``, or None.
        longest: Number of tokens of the longest sequence, or more; None if not known.
    """

    offsets: Tensor
    is_causal: bool
    window: tuple[int | None, int | None] | None
    longest: int | None

    @staticmethod
    def __new__(
        cls,
        offsets: Tensor,
        length: int,
        *,
        is_causal: bool,
        window: tuple[int | None, int | None] | None = None,
        longest: int | None = None,
    ) -> "PackedMask":
        """Describe the mask of ``length`` tokens."""
        mask: PackedMask = Tensor._make_wrapper_subclass(
            cls, (1, 1, length, length), dtype=torch.bool, device=offsets.device
        )
        mask.offsets, mask.is_causal = offsets, is_causal
        mask.window, mask.longest = window, longest
        return mask

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation on the matrix."""

        def read(x: Any) -> Any:
            return x.matrix() if isinstance(x, PackedMask) else x

        return func(*tree_map(read, args), **tree_map(read, kwargs or {}))

    def matrix(self) -> Tensor:
        """Return the mask as a plain tensor."""
        return packed_matrix(
            self.offsets, self.shape[-1], is_causal=self.is_causal, window=self.window
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Name the sizes alone."""
        return f"PackedMask({len(self.offsets) - 1} sequences, {self.shape[-1]} tokens)"
