"""A cache of transformers that keeps packed keys."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from adasparse.functional.growing import GrowingRows
from adasparse.functional.packed_keys import PackedKeys
from adasparse.integrations.calls import with_packed


class PackedLayer(DynamicLayer):
    """A layer of ``PackedCache``: keys packed, and values in memory that grows ahead of need."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._packed: PackedKeys | None = None
        self._rows: GrowingRows | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start without keys."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._packed = PackedKeys(key_states[:, :, :0].detach())
        self._rows = GrowingRows(value_states[:, :, :0].detach())
        self.is_initialized = True
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        """Set the attributes that models and other code of transformers read, and return them."""
        assert self._packed is not None and self._rows is not None
        keys, values = with_packed(self._packed), self._rows.rows()
        self.keys, self.values = keys, values
        return keys, values

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys ``(b, h, n, d)`` and values; return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self._packed is not None and self._rows is not None
        self._packed.append(key_states)
        self._rows.append(value_states)
        return self._show()

    def get_seq_length(self) -> int:
        """Return the number of keys."""
        return 0 if self._packed is None else len(self._packed)

    def reset(self) -> None:
        """Forget all keys."""
        self._packed = self._rows = None
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Remove so many tokens, a negative number, from the end."""
        if tokens_to_remove > 0:
            raise ValueError(
                "crop takes a negative number, that of the tokens to remove from the end; "
                f"got {tokens_to_remove}."
            )
        if tokens_to_remove == 0 or self._packed is None or self._rows is None:
            return
        length = max(0, len(self._packed) + tokens_to_remove)
        self._packed.truncate(length)
        self._rows.truncate(length)
        self._show()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the sequences, as beams change places."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence so many times."""
        if self._packed is not None:
            batch = torch.arange(self._packed.shape[0], device=self.device)
            self.batch_select_indices(batch.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these sequences."""
        if self._packed is None or self._rows is None:
            return
        if indices.dtype == torch.bool:
            indices = indices.nonzero().flatten()
        self._packed.reorder(indices)
        self._rows.reorder(indices)
        self._show()

    def offload(self) -> None:
        """Refuse, since packed keys stay where they are."""
        raise NotImplementedError("PackedCache cannot be offloaded; use DynamicCache.")

    def prefetch(self) -> None:
        """Do nothing: there is nothing to bring back."""


class PackedCache(DynamicCache):
    """A cache for the generation of models with sparse attention, which reads little of it.

    Pass it to ``generate`` or to a model as ``past_key_values``, in place of the ``DynamicCache``
    that they use by default; the tokens are the same. Keys are ``adasparse.PackedKeys``, and
    neither keys nor values are copied for every token. Layers with a sliding window keep the cache
    of transformers, as their keys are few. For inference only.

    Args:
        config: Configuration of the model, which says which layers have a sliding window; None if
            no layer has.

    Example:
        >>> model.generate(tokens, past_key_values=PackedCache(model.config))  # doctest: +SKIP
    """

    def __init__(self, config: Any = None) -> None:
        super().__init__(config=config)
        if self.layer_class_to_replicate is DynamicLayer:
            self.layer_class_to_replicate = PackedLayer
        self.layers = [
            PackedLayer() if type(layer) is DynamicLayer else layer for layer in self.layers
        ]
