"""What an attention kernel is given, and the gradients it gives back."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class AttentionProblem:
    """Attention with checked arguments, everything of rank 4.

    A score is ``scale <q_i, k_j>``, less ``slope |i + k - q - j|``, plus the mask where that is
    float. Keys are left out where a bool mask is False, from ``key_lengths`` of the sequence on,
    and after position ``i`` of a causal query ``i``.

    Args:
        query: ``(b, h, q, d)``.
        key: ``(b, g, k, d)``; query head ``i`` reads key head ``i // (h // g)``.
        value: ``(b, g, k, e)``.
        alpha: Broadcastable to ``(b, h, q, 1)``, in float64.
        scale: Factor of the dot products.
        mask: Bool or float, broadcastable to ``(b, h, q, k)``, or None.
        key_lengths: ``(b,)`` in int64, or None.
        slopes: ``(h,)`` in float64, or None.
        seed: Int64 of rank 0, what dropout is drawn from; None without dropout.
        is_causal: Whether query ``i`` sees keys ``0`` to ``i`` only.
        dropout_p: Share of the weights to drop; the others grow to make up for it.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    alpha: Tensor
    scale: float
    mask: Tensor | None = None
    key_lengths: Tensor | None = None
    slopes: Tensor | None = None
    seed: Tensor | None = None
    is_causal: bool = False
    dropout_p: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AttentionGradients:
    """Gradients in the shapes of what they belong to; None where not asked for.

    ``alpha`` and ``slopes`` are in float64, ``mask`` in the dtype of the query.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    alpha: Tensor | None = None
    mask: Tensor | None = None
    slopes: Tensor | None = None
