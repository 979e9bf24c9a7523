"""Masks that say in words what they hold, where words will do.

A mask built here is a plain bool tensor as any other, so that models can slice and combine it. It
also carries a note: "the first n keys of each sequence", "these and causal". A model that hands the
same tensor on to attention thereby hands on the note, and no matrix need be read.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    prepare_padding_mask,
    sdpa_mask,
)

from adasparse.integrations.huggingface.internals import (
    is_tracing,
    packed_rows_of,
    sliding_window_of,
)
from adasparse.integrations.packing import PackedMask

_NOTE = "_adasparse_note"
_OFFSETS = "_adasparse_offsets"


class MaskNote(NamedTuple):
    """The contents of a mask in the terms of ``entmax_attention``.

    ``version`` is that of the mask when the note was written; a mask changed since is without one.
    """

    is_causal: bool
    key_lengths: Tensor
    window: tuple[int | None, int | None] | None
    version: int


def read_note(mask: Tensor, query: Tensor, key: Tensor) -> MaskNote | None:
    """Return the note on a mask, if it holds for these ``(b, h, q, d)`` and ``(b, g, k, d)``."""
    if mask.shape[2:] != (query.shape[2], key.shape[2]):
        return None
    is_one_query = mask.shape[1:3] == (1, 1) and mask.dtype == torch.bool
    # Generation copies masks; that of one query is cheap to read, where reading does not stall.
    if is_one_query and mask.is_cpu and not hasattr(mask, _NOTE):
        _note_prefix(mask)
    note: MaskNote | None = getattr(mask, _NOTE, None)
    if note is None or note.version != mask._version or len(note.key_lengths) != len(query):
        return None
    return note


def _with_note(
    mask: Tensor,
    is_causal: bool,
    key_lengths: Tensor,
    window: tuple[int | None, int | None] | None = None,
) -> Tensor:
    setattr(mask, _NOTE, MaskNote(is_causal, key_lengths, window, mask._version))
    return mask


def _note_prefix(mask: Tensor) -> Tensor:
    """Note on the mask ``(b, 1, 1, k)`` of one query how many keys it sees, if those come first."""
    lengths = _prefix_lengths(mask[:, 0, 0])
    if lengths is None:
        setattr(mask, _NOTE, None)
        return mask
    return _with_note(mask, False, lengths)


def _prefix_lengths(rows: Tensor) -> Tensor | None:
    """Return how many keys come first in each row ``(b, k)``, if none comes after a gap."""
    lengths = rows.sum(-1)
    is_prefix = rows == (torch.arange(rows.shape[1], device=rows.device) < lengths.unsqueeze(-1))
    return lengths if bool(is_prefix.all()) else None


def entmax_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **kwargs: Any,
) -> Tensor | None:
    """Build the mask that transformers asks for: its own for SDPA, with a note where one fits.

    None means what it means for SDPA: all keys, or keys 0 to i where the module is causal and has
    more than one query. Arguments are those of ``transformers.masking_utils.sdpa_mask``.
    """
    is_local = local_size is not None and kv_length >= local_size
    # Skips are allowed where nothing was added to the plain mask but, maybe, a local window.
    is_causal = mask_function is causal_mask_function or (allow_is_causal_skip and not is_local)
    is_bidirectional = mask_function is bidirectional_mask_function or (
        allow_is_bidirectional_skip and not is_local
    )
    if attention_mask is None and batch_size == 1 and q_length == kv_length:
        packed = _packed_mask(mask_function, kv_length)
        if packed is not None:
            return packed
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    lengths = None
    if padding is None:
        device = kwargs.get("device", "cpu")
        lengths = torch.full((batch_size,), kv_length, device=device)
    elif not is_tracing(padding):
        padding = padding[:, kv_offset : kv_offset + kv_length]
        lengths = _prefix_lengths(padding)
    if (
        padding is not None
        and lengths is not None
        and is_bidirectional
        and not is_causal
        and bool((lengths < kv_length).any())
    ):
        rows = padding[:, None, None].expand(batch_size, 1, q_length, -1)
        return _with_note(rows, False, lengths)
    mask = sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=allow_is_causal_skip,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip,
        **kwargs,
    )
    if mask is None or is_tracing(mask):
        return mask
    if q_length == 1:
        return _note_prefix(mask)
    if lengths is None or not kv_offset == int(q_offset) == 0:
        return mask
    if is_causal:
        return _with_note(mask, True, lengths)
    local = sliding_window_of(mask_function)
    if local is None:
        return mask
    is_causal, window = local
    return _with_note(mask, is_causal, lengths, window)


def _packed_mask(mask_function: Callable[..., Any], length: int) -> PackedMask | None:
    """Return the mask of a packed row, causal or within a window; None if it is anything else."""
    found = packed_rows_of(mask_function)
    if found is None:
        return None
    numbers, inner = found
    local = (True, None) if inner is causal_mask_function else sliding_window_of(inner)
    if local is None or numbers.shape != (1, length) or is_tracing(numbers):
        return None
    offsets = _offsets(numbers[0].diff() != 0)
    longest = int(offsets.diff().max())
    return PackedMask(offsets, length, is_causal=local[0], window=local[1], longest=longest)


def _offsets(is_new: Tensor) -> Tensor:
    """Return the offsets of sequences from whether each token but the first begins one."""
    starts = is_new.nonzero().flatten() + 1
    ends = torch.tensor([0, len(is_new) + 1], device=is_new.device)
    return torch.cat((ends[:1], starts, ends[1:])).int()


def offsets_of_positions(positions: Any, length: int) -> Tensor | None:
    """Return the offsets of the sequences of a row, which begin where positions do not count on.

    None if positions say nothing, or that there is but one sequence.
    """
    if not isinstance(positions, Tensor) or positions.shape != (1, length) or length < 2:
        return None
    version, offsets = getattr(positions, _OFFSETS, (None, None))
    if version != positions._version:
        is_new = positions[0].diff() != 1
        offsets = _offsets(is_new) if bool(is_new.any()) else None
        setattr(positions, _OFFSETS, (positions._version, offsets))  # once for all layers
    return offsets


def entmax_explicit_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Build the same mask for modules that do not say whether they are causal: None is no mask."""
    return entmax_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
