"""The attention function that transformers calls, in place of softmax attention."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from adasparse.integrations.calls import (
    AttentionCall,
    is_probing,
    is_steered,
    observed,
    probing,
    steering,
    watching,
)
from adasparse.integrations.huggingface.heads import CHILD, LAYER_INPUT
from adasparse.integrations.huggingface.internals import collects_attentions
from adasparse.integrations.huggingface.masks import (
    entmax_explicit_mask,
    entmax_mask,
    offsets_of_positions,
    read_note,
)
from adasparse.integrations.packing import PackedMask, packed_matrix
from adasparse.kernels.problem import with_tensors

__all__ = [
    "EXPLICIT_NAME",
    "LEFT_DENSE",
    "NAME",
    "AttentionCall",
    "entmax_attention_forward",
    "entmax_explicit_attention_forward",
    "probing",
    "steering",
    "watching",
]

#: Name of this attention among the implementations of transformers.
NAME = "adasparse"
#: The same for models whose modules do not say whether they are causal: all masks are tensors.
EXPLICIT_NAME = "adasparse-explicit"
#: Attribute of the attention modules that keep softmax.
LEFT_DENSE = "_adasparse_left_dense"
#: Arguments of modules that a packed row is read from.
_PACKING = ("cu_seq_lens_q", "max_length_q", "position_ids", "sliding_window")


def _scale_and_alpha(
    module: nn.Module, query: Tensor, visible: Callable[[], Tensor]
) -> tuple[Tensor, float | Tensor]:
    heads = module._modules.get(CHILD)
    if heads is not None:
        layer_input = module.__dict__.pop(LAYER_INPUT, None)
        return heads(query, visible, layer_input)  # type: ignore[no-any-return]
    if not is_probing() and not getattr(module, LEFT_DENSE, False):
        raise RuntimeError(
            f"{type(module).__name__} was asked for sparse attention and has no exponents: after "
            f"from_pretrained(..., attn_implementation={NAME!r}) call adasparse.sparsify(model). "
            "If it is sparse already, this module was not reached when sparsify() looked for "
            "attention: pass inputs=... that reach it. A sparse checkpoint that was loaded with a "
            "dense class must be loaded with an Auto class."
        )
    return query, 1.0


def _merge_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Put a position bias ``(1, h, q, k)`` and a mask into one float mask."""
    if bias is None:
        return mask
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, -torch.inf)
    return bias + mask


def entmax_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    output_attentions: bool | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as ``module`` was configured to; the signature is that of transformers.

    Returns:
        The output ``(b, q, h, e)``, and the weights ``(b, h, q, k)`` if they are asked for. Only
        then is the matrix of weights materialized.
    """
    # Offsets of sequences, but in continuous batching, whose mask says what they do.
    packing = {} if cache is not None else {x: kwargs[x] for x in _PACKING if x in kwargs}
    if cache is not None:  # the paged cache of continuous batching, which says what it read
        key, value = cache.update(
            key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs
        )
    wants_weights = collects_attentions() if output_attentions is None else output_attentions
    packed = _packed_mask(module, query, key, attention_mask, is_causal, packing)
    is_plain = softcap is None and s_aux is None and packed is None
    if getattr(module, LEFT_DENSE, False) and is_plain and not (wants_weights or is_steered()):
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            position_bias=position_bias,
            **kwargs,
        )
    call = AttentionCall(
        module=module,
        query=query,
        key=key,
        value=value,
        alpha=1.0,
        scale=scaling,
        softcap=softcap,
        sinks=s_aux,
        **_mask_arguments(module, query, key, attention_mask, is_causal, position_bias, packed),
    )
    query, alpha = _scale_and_alpha(module, query, call.visible)
    call = observed(with_tensors(call, {"query": query, "alpha": alpha}))
    if not wants_weights:
        return call.output(dropout).transpose(1, 2).contiguous(), None
    weights = call.weights()
    output = call.weigh_values(nn.functional.dropout(weights, dropout) if dropout else weights)
    return output.transpose(1, 2).contiguous(), weights if wants_weights else None


def _mask_arguments(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    is_causal: bool | None,
    position_bias: Tensor | None,
    packed: Tensor | None,
) -> dict[str, Any]:
    """Return the visible keys in the terms of ``AttentionCall``."""
    causal, key_lengths, window = False, None, None
    if isinstance(packed, PackedMask):
        if position_bias is None:
            return {"mask": packed}
        packed = packed.matrix()
    attention_mask = attention_mask if packed is None else packed
    if attention_mask is None:
        claim = getattr(module, "is_causal", True) if is_causal is None else is_causal
        causal = query.shape[2] > 1 and bool(claim)
    elif not torch.compiler.is_compiling():
        note = read_note(attention_mask, query, key)
        if note is not None:
            attention_mask, causal, key_lengths = None, note.is_causal, note.key_lengths
            window = note.window
    return {
        "mask": _merge_bias(attention_mask, position_bias),
        "is_causal": causal,
        "key_lengths": key_lengths,
        "window": window,
    }


def _packed_mask(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    is_causal: bool | None,
    packing: Mapping[str, Any],
) -> Tensor | None:
    """Return the mask of a packed row, from positions that restart or from the offsets given.

    A ``PackedMask``, or its matrix while compiling. Offsets are those of transformers' flash
    attention: ``cu_seq_lens_q`` and the like, or the positions. They hold where there is no mask,
    or one without padding.
    """
    n, is_compiling = query.shape[2], torch.compiler.is_compiling()
    by_mask = attention_mask if isinstance(attention_mask, PackedMask) else None
    if query.shape[0] != 1 or key.shape[2] != n or n < 2:
        return by_mask
    offsets = packing.get("cu_seq_lens_q")
    if offsets is None and by_mask is None and not is_compiling:
        offsets = offsets_of_positions(packing.get("position_ids"), n)
    if offsets is None:
        return by_mask
    if by_mask is not None:
        is_causal, window = by_mask.is_causal, by_mask.window
    elif attention_mask is not None:
        note = None if is_compiling else read_note(attention_mask, query, key)
        if note is None or bool((note.key_lengths < n).any()):
            return None
        is_causal, window = note.is_causal, note.window
    else:
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        size = packing.get("sliding_window")
        window = None if size is None else (size - 1, 0) if is_causal else (size, size)
    if is_compiling:
        return packed_matrix(offsets, n, is_causal=bool(is_causal), window=window)
    longest = packing.get("max_length_q")
    return PackedMask(
        offsets.int(),
        n,
        is_causal=bool(is_causal),
        window=window,
        longest=None if longest is None else int(longest),
    )


def entmax_explicit_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend in the same way, where no mask means that all keys are seen."""
    kwargs["is_causal"] = False
    return entmax_attention_forward(module, query, key, value, attention_mask, **kwargs)


AttentionInterface.register(NAME, entmax_attention_forward)
AttentionMaskInterface.register(NAME, entmax_mask)
AttentionInterface.register(EXPLICIT_NAME, entmax_explicit_attention_forward)
AttentionMaskInterface.register(EXPLICIT_NAME, entmax_explicit_mask)
