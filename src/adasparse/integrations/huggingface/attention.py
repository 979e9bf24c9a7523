"""The attention function that transformers calls, in place of softmax attention."""

from collections.abc import Callable
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
    read_note,
)
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
#: Arguments that change what attention means and that nothing here implements.
_UNSUPPORTED = {"s_aux": "attention sinks"}


def _scale_and_alpha(
    module: nn.Module, query: Tensor, visible: Callable[[], Tensor]
) -> tuple[Tensor, float | Tensor]:
    heads = module._modules.get(CHILD)
    if heads is not None:
        layer_input = module.__dict__.pop(LAYER_INPUT, None)
        return heads(query, visible, layer_input)  # type: ignore[no-any-return]
    if not is_probing() and not getattr(module, LEFT_DENSE, False):
        raise RuntimeError(
            f"{type(module).__name__} was asked for sparse attention and has no exponents: it was "
            "not reached when sparsify() looked for attention, or a sparse checkpoint was loaded "
            "with a dense class. Pass inputs=... that reach it to sparsify(), or load the "
            "checkpoint with an Auto class."
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
    output_attentions: bool | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as ``module`` was configured to; the signature is that of transformers.

    Returns:
        The output ``(b, q, h, e)``, and the weights ``(b, h, q, k)`` if they are asked for. Only
        then, or with a softcap, is the matrix of weights materialized.
    """
    for name, meaning in _UNSUPPORTED.items():
        if kwargs.get(name) is not None:
            raise NotImplementedError(
                f"{type(module).__name__} uses {meaning}, for which there is no sparse counterpart."
            )
    if cache is not None:  # the paged cache of continuous batching, which says what it read
        key, value = cache.update(
            key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs
        )
    wants_weights = collects_attentions() if output_attentions is None else output_attentions
    needs_kernel_only = not wants_weights and softcap is None
    if getattr(module, LEFT_DENSE, False) and needs_kernel_only and not is_steered():
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
        **_mask_arguments(module, query, key, attention_mask, is_causal, position_bias),
    )
    query, alpha = _scale_and_alpha(module, query, call.visible)
    call = observed(with_tensors(call, {"query": query, "alpha": alpha}))
    if needs_kernel_only:
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
) -> dict[str, Any]:
    """Return the visible keys in the terms of ``AttentionCall``."""
    causal, key_lengths, window = False, None, None
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
