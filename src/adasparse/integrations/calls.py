"""One attention call of a model, and the means to watch and to change such calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adasparse.functional import (
    SparseWeights,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_varlen,
)
from adasparse.functional.adaptive_temperature import (
    adaptive_temperature_attention,
    adaptive_temperature_weights,
    sharpened_softmax,
)
from adasparse.functional.attention_arguments import attention_problem
from adasparse.functional.differentiable_attention import (
    attention_scores,
    attention_weights,
    normalized,
)
from adasparse.functional.packed_keys import PackedKeys
from adasparse.integrations.packing import PackedMask
from adasparse.kernels import AttentionProblem
from adasparse.kernels.problem import traceable
from adasparse.nn import visible_keys

#: Attribute of a tensor of keys under which a cache leaves the packed ones.
_PACKED = "_adasparse_packed"


def with_packed(packed: PackedKeys) -> Tensor:
    """Return packed keys as a tensor that remembers them, for models that handle tensors alone.

    Operations on it, even a slice, return ordinary tensors: whatever changes the keys forgets the
    packed ones.
    """
    key = packed.to_dense()
    setattr(key, _PACKED, packed)
    return key


def packed_of(key: Tensor) -> PackedKeys | Tensor:
    """Return the packed keys that a tensor remembers, or the tensor."""
    packed = getattr(key, _PACKED, None)
    # A tensor that is older than the last change of its cache is no longer about these keys.
    return key if packed is None or packed.shape != key.shape else packed


@traceable
@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCall:
    """One attention call of a module.

    Args:
        module: Attention module that makes the call.
        query: ``(b, h, q, d)``, rotated and scaled for its length where that is configured.
        key: ``(b, g, k, d)``.
        value: ``(b, g, k, e)``.
        alpha: A number, or one per head ``(h,)``, or ``(1,)``; 1 is softmax.
        mask: Bool or float, broadcastable to ``(b, h, q, k)``, or None; a ``PackedMask`` alone for
            a packed row.
        is_causal: Whether query i sees keys 0 to i only.
        key_lengths: ``(b,)``, or None.
        window: Sliding window ``(left, right)``, or None.
        slopes: ALiBi slopes ``(h,)``, 0 for heads without positions; or None.
        scale: Factor of the dot products, ``1 / sqrt(d)`` if None.
        softcap: Bound that ``softcap * tanh(score / softcap)`` puts on scores, or None.
        sinks: Score of the sink of each head ``(h,)``, or None.
        adapts_temperature: Whether softmax is sharpened by its entropy.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    alpha: float | Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    key_lengths: Tensor | None = None
    window: tuple[int | None, int | None] | None = None
    slopes: Tensor | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    adapts_temperature: bool = False

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments that all functions of attention take."""
        return {
            "alpha": self.alpha,
            "attn_mask": self.mask.matrix() if isinstance(self.mask, PackedMask) else self.mask,
            "is_causal": self.is_causal,
            "key_lengths": self.key_lengths,
            "window": self.window,
            "alibi_slopes": self.slopes,
            "scale": self.scale,
            "softcap": self.softcap,
            "sinks": self.sinks,
            "enable_gqa": True,
        }

    def problem(self) -> AttentionProblem:
        """Return the call as the functional layer takes it, without temperature."""
        return attention_problem(self.query, self.key, self.value, **self.options())[0]

    def visible(self) -> Tensor:
        """Count the keys that each query sees, broadcastable to ``(b, h, q, 1)``."""
        return visible_keys(
            self.query.shape[2],
            self.key.shape[2],
            is_causal=self.is_causal,
            key_lengths=self.key_lengths,
            attn_mask=self.options()["attn_mask"],
            window=self.window,
            device=self.query.device,
        )

    def output(self, dropout_p: float = 0.0) -> Tensor:
        """Attend through the fused kernel: ``(b, h, q, e)``."""
        if self.adapts_temperature:
            return adaptive_temperature_attention(self.problem())
        if isinstance(self.mask, PackedMask):
            return self._packed_output(self.mask, dropout_p)
        return entmax_attention(
            self.query, packed_of(self.key), self.value, dropout_p=dropout_p, **self.options()
        )

    def _packed_output(self, mask: PackedMask, dropout_p: float) -> Tensor:
        """Attend in each sequence of a packed row."""
        query, key, value = (
            x.squeeze(0).transpose(0, 1) for x in (self.query, self.key, self.value)
        )
        output = entmax_attention_varlen(
            query,
            key,
            value,
            cu_seq_q=mask.offsets,
            max_q=mask.longest,
            max_k=mask.longest,
            alpha=self.alpha,
            is_causal=mask.is_causal,
            window=mask.window,
            alibi_slopes=self.slopes,
            scale=self.scale,
            softcap=self.softcap,
            sinks=self.sinks,
            dropout_p=dropout_p,
            enable_gqa=True,
        )
        return output.transpose(0, 1).unsqueeze(0)

    def weights(self) -> Tensor:
        """Return the whole matrix of weights ``(b, h, q, k)``, before dropout."""
        if self.adapts_temperature:
            return adaptive_temperature_weights(self.problem())
        return attention_weights(self.problem())

    def weights_of_rows(
        self, example: int, rows: slice | Tensor, *, num_keys: int | None = None
    ) -> Tensor:
        """Return the weights ``(h, r, k)`` of some queries of an example, before dropout.

        Args:
            example: Index in the batch.
            rows: Queries: a slice, or positions ``(r,)``.
            num_keys: Number of keys from the first one on; all if None. Later keys must be masked.

        Returns:
            In float32, or float64 for float64 queries or an alpha above 2.
        """
        problem = self.problem().sequence(example)
        scores = attention_scores(problem, rows, num_keys=num_keys)
        if self.adapts_temperature:
            return sharpened_softmax(scores[0])
        alpha = self.alpha[:, None, None] if isinstance(self.alpha, Tensor) else self.alpha
        return normalized(problem, scores, alpha)[0]

    def support(self) -> SparseWeights:
        """Return the nonzero weights; with a temperature through the matrix."""
        if not self.adapts_temperature:
            return entmax_attention_support(self.query, self.key, **self.options())
        rows = self.weights().flatten(0, 2)
        row, col = rows.nonzero(as_tuple=True)
        crow = row.new_zeros(len(rows) + 1)
        crow[1:] = row.bincount(minlength=len(rows)).cumsum(0)
        return SparseWeights(crow, col, rows[row, col])

    def weigh_values(self, weights: Tensor) -> Tensor:
        """Return ``weights @ value``, ``(b, h, q, e)`` in the dtype of the weights."""
        b, h, q, k = weights.shape
        g = self.value.shape[1]
        output = weights.reshape(b, g, h // g * q, k) @ self.value.to(weights.dtype)
        return output.reshape(b, h, q, -1)


_watchers: list[Callable[[AttentionCall], None]] = []
_probes: list[Callable[[AttentionCall], None]] = []
_steering: ContextVar[Callable[[AttentionCall], AttentionCall] | None] = ContextVar(
    "steering", default=None
)


@contextmanager
def watching(watcher: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Pass every attention call to ``watcher`` meanwhile, except those of compiled code."""
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


@contextmanager
def steering(change: Callable[[AttentionCall], AttentionCall]) -> Iterator[None]:
    """Replace each attention call by the one that ``change`` returns, except in compiled code.

    No module is touched, and other threads and contexts are not affected. Modules that keep softmax
    are included, at alpha 1.
    """
    token = _steering.set(change)
    try:
        yield
    finally:
        _steering.reset(token)


def is_probing() -> bool:
    """Whether modules that are not sparse may call."""
    return bool(_probes)


def is_steered() -> bool:
    """Whether calls of this thread are replaced."""
    return not torch.compiler.is_compiling() and _steering.get() is not None


def observed(call: AttentionCall) -> AttentionCall:
    """Return the call to compute, after steering, and pass it to all watchers."""
    if torch.compiler.is_compiling():
        return call
    change = _steering.get()
    if change is not None:
        call = change(call)
    for watcher in list(_watchers):
        watcher(call)
    return call
