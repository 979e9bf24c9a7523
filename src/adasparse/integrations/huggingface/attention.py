"""The attention function that transformers calls, in place of softmax attention."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from adasparse.functional.attention import entmax_attention, entmax_attention_weights
from adasparse.functional.entmax import entmax
from adasparse.integrations.huggingface.heads import CHILD, LAYER_INPUT
from adasparse.integrations.huggingface.internals import collects_attentions
from adasparse.integrations.huggingface.masks import (
    entmax_explicit_mask,
    entmax_mask,
    read_note,
)
from adasparse.nn import visible_keys

#: Name of this attention among the implementations of transformers.
NAME = "adasparse"
#: The same for models whose modules do not tell whether they are causal: all masks are tensors.
EXPLICIT_NAME = "adasparse-explicit"
#: Attribute of the attention modules that were left as they were.
LEFT_DENSE = "_adasparse_left_dense"
#: Arguments that change what attention means and that nothing here implements.
_UNSUPPORTED = {"s_aux": "attention sinks", "cache": "a paged cache"}


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCall:
    """One call of attention: what is attended to, in the form that the functions here take.

    Args:
        module: The attention module that calls.
        query: ``(b, h, q, d)``, scaled for its length where that is configured.
        key: ``(b, g, k, d)``.
        value: ``(b, g, k, e)``.
        alpha: A number, or one per head ``(h,)``, or ``(1,)``.
        mask: Bool or float, broadcastable to ``(b, h, q, k)``, or None.
        is_causal: Whether query i sees keys 0 to i only.
        key_lengths: ``(b,)``, or None.
        scale: Factor of the dot products.
        softcap: Bound that ``softcap * tanh(score / softcap)`` puts on scores, or None.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    alpha: float | Tensor
    mask: Tensor | None
    is_causal: bool
    key_lengths: Tensor | None
    scale: float | None
    softcap: float | None

    def options(self) -> dict[str, Any]:
        """Return what both functions of attention take."""
        return {
            "alpha": self.alpha,
            "attn_mask": self.mask,
            "is_causal": self.is_causal,
            "key_lengths": self.key_lengths,
            "scale": self.scale,
            "enable_gqa": True,
        }

    def visible(self) -> Tensor:
        """Count the keys that each query sees, broadcastable to ``(b, h, q, 1)``."""
        return visible_keys(
            self.query.shape[2],
            self.key.shape[2],
            is_causal=self.is_causal,
            key_lengths=self.key_lengths,
            attn_mask=self.mask,
            device=self.query.device,
        )

    def output(self, dropout_p: float = 0.0) -> Tensor:
        """Attend through the fused kernel: ``(b, h, q, e)``."""
        return entmax_attention(
            self.query, self.key, self.value, dropout_p=dropout_p, **self.options()
        )

    def weights(self) -> Tensor:
        """Return the whole matrix of weights ``(b, h, q, k)``, before dropout."""
        if self.softcap is None:
            return entmax_attention_weights(self.query, self.key, layout="dense", **self.options())
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            alpha = alpha.reshape(-1, 1, 1)
        return entmax(self._capped_scores(), alpha).to(self.query.dtype)

    def _capped_scores(self) -> Tensor:
        assert self.softcap is not None
        (b, h, q, d), (_, g, k, _) = self.query.shape, self.key.shape
        dtype = torch.promote_types(self.query.dtype, torch.float32)
        with torch.autocast(self.query.device.type, enabled=False):
            query = self.query.to(dtype).reshape(b, g, h // g * q, d)
            scores = query @ self.key.to(dtype).transpose(-1, -2)
            scores = scores.reshape(b, h, q, k) * (d**-0.5 if self.scale is None else self.scale)
            scores = (scores / self.softcap).tanh() * self.softcap
        if self.mask is not None and self.mask.dtype != torch.bool:
            scores = scores + self.mask
        can_see = self._can_see()
        return scores if can_see is None else scores.masked_fill(~can_see, -torch.inf)

    def _can_see(self) -> Tensor | None:
        can_see = self.mask if self.mask is not None and self.mask.dtype == torch.bool else None
        j = torch.arange(self.key.shape[2], device=self.key.device)
        if self.is_causal:
            past = j <= torch.arange(self.query.shape[2], device=j.device).unsqueeze(-1)
            can_see = past if can_see is None else can_see & past
        if self.key_lengths is not None:
            inside = j < self.key_lengths[:, None, None, None]
            can_see = inside if can_see is None else can_see & inside
        return can_see


_watchers: list[Callable[[AttentionCall], None]] = []
_probes: list[Callable[[AttentionCall], None]] = []


@contextmanager
def watching(watcher: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Have ``watcher`` called with every call of attention meanwhile, except in compiled code."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextmanager
def probing(watcher: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Do the same, and let modules that are not sparse call, too; they get softmax."""
    _probes.append(watcher)
    try:
        with watching(watcher):
            yield
    finally:
        _probes.remove(watcher)


_steering: ContextVar[Callable[[AttentionCall], AttentionCall] | None] = ContextVar(
    "steering", default=None
)


@contextmanager
def steering(change: Callable[[AttentionCall], AttentionCall]) -> Iterator[None]:
    """Have each call of attention replaced by what ``change`` returns, except in compiled code.

    No module is touched, and other threads and contexts are not affected. Modules that were left
    dense come by, too, at alpha 1.
    """
    token = _steering.set(change)
    try:
        yield
    finally:
        _steering.reset(token)


def _scale_and_alpha(
    module: nn.Module, query: Tensor, visible: Callable[[], Tensor]
) -> tuple[Tensor, float | Tensor]:
    heads = module._modules.get(CHILD)
    if heads is not None:
        layer_input = module.__dict__.pop(LAYER_INPUT, None)
        return heads(query, visible, layer_input)  # type: ignore[no-any-return]
    if not _probes and not getattr(module, LEFT_DENSE, False):
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
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as ``module`` was configured to; the signature is that of transformers.

    Returns:
        The output ``(b, q, h, e)``, and the weights ``(b, h, q, k)`` if they are asked for. Only
        then, or with a softcap, is the matrix of weights built.
    """
    for name, meaning in _UNSUPPORTED.items():
        if kwargs.get(name) is not None:
            raise NotImplementedError(
                f"{type(module).__name__} uses {meaning}, for which there is no sparse counterpart."
            )
    given_mask, key_lengths = attention_mask, None
    note = None
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        causal = query.shape[2] > 1 and bool(causal)
    else:
        causal = False
        if not torch.compiler.is_compiling():
            note = read_note(attention_mask, query, key)
        if note is not None:
            attention_mask, causal, key_lengths = None, note.is_causal, note.key_lengths
    wants_weights = _wants_weights(output_attentions)
    change = None if torch.compiler.is_compiling() else _steering.get()
    is_plain = not wants_weights and softcap is None and change is None
    if getattr(module, LEFT_DENSE, False) and is_plain:
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            given_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            position_bias=position_bias,
            **kwargs,
        )
    mask = _merge_bias(attention_mask, position_bias)
    visible = partial(
        visible_keys,
        query.shape[2],
        key.shape[2],
        is_causal=causal,
        key_lengths=key_lengths,
        attn_mask=mask,
        device=query.device,
    )
    query, alpha = _scale_and_alpha(module, query, visible)
    call = AttentionCall(
        module=module,
        query=query,
        key=key,
        value=value,
        alpha=alpha,
        mask=mask,
        is_causal=causal,
        key_lengths=key_lengths,
        scale=scaling,
        softcap=softcap,
    )
    if change is not None:
        call = change(call)
    if _watchers and not torch.compiler.is_compiling():
        for watcher in list(_watchers):
            watcher(call)
    if not wants_weights and softcap is None:
        return call.output(dropout).transpose(1, 2).contiguous(), None
    weights = call.weights()
    dropped = nn.functional.dropout(weights, dropout) if dropout else weights
    b, h, q, k = dropped.shape
    value = call.value.to(dropped.dtype)
    g = value.shape[1]
    output = (dropped.reshape(b, g, h // g * q, k) @ value).reshape(b, h, q, -1)
    return output.transpose(1, 2).contiguous(), weights if wants_weights else None


def _wants_weights(output_attentions: bool | None) -> bool:
    """Tell whether the caller asks for weights, by an argument or by collecting them."""
    return collects_attentions() if output_attentions is None else output_attentions


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
