"""The masks of torch.nn.MultiheadAttention in the terms of entmax_attention."""

import math
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn.functional import pad


class MaskArguments(TypedDict):
    """The visible keys of each query, as arguments of ``entmax_attention``."""

    attn_mask: Tensor | None
    key_lengths: Tensor | None
    is_causal: bool


def translate_masks(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    is_causal: bool,
    sizes: tuple[int, int, int, int],
    num_extra_keys: int,
    device: torch.device,
) -> MaskArguments:
    """Turn masks in which True masks a key, or which are added, into arguments.

    Args:
        key_padding_mask: ``(b, k)``.
        attn_mask: ``(q, k)`` or ``(b * h, q, k)``; not read if ``is_causal``.
        is_causal: Whether query i sees keys 0 to i only.
        sizes: ``(b, h, q, k)``.
        num_extra_keys: Number of keys after the ``k`` that every query sees.
        device: Device of the result.
    """
    b, h, q, k = sizes
    mask = None if is_causal else attn_mask
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(b, h, q, k)
    if num_extra_keys:
        if is_causal:
            mask = torch.ones(q, k, dtype=torch.bool, device=device).triu(1)
            is_causal = False
        mask = _pad(mask, num_extra_keys)
        key_padding_mask = _pad(key_padding_mask, num_extra_keys)
    lengths = None if key_padding_mask is None else padding_lengths(key_padding_mask)
    if lengths is None:
        mask = _merge(mask, key_padding_mask)
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    return {"attn_mask": mask, "key_lengths": lengths, "is_causal": is_causal}


def _pad(mask: Tensor | None, count: int) -> Tensor | None:
    """Add ``count`` keys that take part: False, or nothing to add."""
    return None if mask is None else pad(mask, (0, count))


def _merge(mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
    if key_padding_mask is None:
        return mask
    padding = key_padding_mask[:, None, None]
    if mask is None:
        return padding
    if mask.dtype == padding.dtype == torch.bool:
        return mask | padding
    if mask.dtype == torch.bool:
        return padding.masked_fill(mask, -math.inf)
    if padding.dtype == torch.bool:
        return mask.masked_fill(padding, -math.inf)
    return mask + padding


def padding_lengths(mask: Tensor) -> Tensor | None:
    """Return the number of keys before the padding, if that is all that a mask says.

    None if it says more, or if asking would stall a device or break a graph.

    Args:
        mask: ``(b, k)``, True or ``-inf`` for padding.
    """
    if (
        mask.device.type != "cpu"
        or mask.requires_grad
        or type(mask) is not Tensor
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
    ):
        return None
    is_padding = mask if mask.dtype == torch.bool else mask == -math.inf
    lengths = mask.shape[1] - is_padding.sum(1)
    says_more = mask.dtype != torch.bool and not torch.equal(mask != 0, is_padding)
    is_at_end = torch.arange(mask.shape[1]) >= lengths[:, None]
    return None if says_more or not torch.equal(is_at_end, is_padding) else lengths
