"""Scaled dot product attention as a module with exponents of its own."""

import torch
from torch import Tensor, nn

from adasparse.functional import entmax_attention, entmax_attention_weights
from adasparse.functional.attention_checks import check_softcap
from adasparse.functional.backends import check_backend
from adasparse.nn.alpha import LearnedAlpha, alpha_value, as_alpha
from adasparse.nn.length_scale import LengthScale, check_length_scale


class EntmaxAttention(nn.Module):
    """Attention to few keys, each head to as few as it learns to.

    Args:
        num_heads: Number of heads ``h`` of the query.
        alpha: A number of at least 1 for all heads, or ``LearnedAlpha``, made if None.
        dropout: Probability of dropping a weight in training.
        scale: Factor of the dot products, ``1 / sqrt(d)`` if None.
        length_scale: Factor of the query that grows with the number of keys.
        alibi_slopes: Slopes ``(h,)`` by which scores fall with each step of distance.
        softcap: Bound of the scores; see ``adasparse.entmax_attention``.
        learn_sinks: Whether each head has a sink, a parameter ``sinks`` that starts at zero.
        backend: Kernels to use; see ``adasparse.entmax_attention``.

    Shape:
        Query ``(b, h, q, d)``, key ``(b, h, k, d)`` and value ``(b, h, k, e)`` to
        ``(b, h, q, e)``.

    Example:
        >>> import torch
        >>> attention = EntmaxAttention(8)
        >>> x = torch.randn(2, 8, 100, 64)
        >>> attention(x, x, x, is_causal=True).shape
        torch.Size([2, 8, 100, 64])
        >>> attention.weights(x, x).shape
        torch.Size([2, 8, 100, 100])
    """

    alpha: float | LearnedAlpha
    alibi_slopes: Tensor | None

    def __init__(
        self,
        num_heads: int,
        *,
        alpha: float | LearnedAlpha | None = None,
        dropout: float = 0.0,
        scale: float | None = None,
        length_scale: LengthScale | None = None,
        alibi_slopes: Tensor | None = None,
        softcap: float | None = None,
        learn_sinks: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be from 0 to 1; got {dropout}.")
        self.num_heads = num_heads
        self.alpha = as_alpha(alpha, num_heads)
        self.dropout = dropout
        self.scale = scale
        self.length_scale = check_length_scale(length_scale, num_heads)
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)
        if softcap is not None:
            check_softcap(softcap)
        self.softcap = softcap
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if learn_sinks else None
        self.backend = check_backend(backend)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        key_lengths: Tensor | None = None,
        enable_gqa: bool = False,
        layer_input: Tensor | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            query: ``(b, h, q, d)``.
            key: ``(b, h, k, d)``.
            value: ``(b, h, k, e)``.
            attn_mask: Broadcasts to ``(b, h, q, k)``. Bool: True where a key takes part. Float:
                added to the scores.
            is_causal: Whether query i sees keys 0 to i only.
            key_lengths: Number of keys before the padding, integers ``(b,)``.
            enable_gqa: Whether ``key`` and ``value`` may have fewer heads.
            layer_input: ``(b, q, embed_dim)``, read by an adaptive ``length_scale`` only.

        Returns:
            ``(b, h, q, e)``; zeros for queries that see no key.
        """
        if self.length_scale is not None:
            query = self.length_scale.scale_query(
                query,
                key.shape[-2],
                attn_mask=attn_mask,
                is_causal=is_causal,
                key_lengths=key_lengths,
                layer_input=layer_input,
            )
        return entmax_attention(
            query,
            key,
            value,
            alpha=alpha_value(self.alpha),
            attn_mask=attn_mask,
            is_causal=is_causal,
            scale=self.scale,
            dropout_p=self.dropout if self.training else 0.0,
            key_lengths=key_lengths,
            alibi_slopes=self.alibi_slopes,
            softcap=self.softcap,
            sinks=self.sinks,
            enable_gqa=enable_gqa,
            backend=self.backend,
        )

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        key_lengths: Tensor | None = None,
        enable_gqa: bool = False,
        layer_input: Tensor | None = None,
    ) -> Tensor:
        """Return the weights ``(b, h, q, k)`` of the same call, before dropout."""
        if self.length_scale is not None:
            query = self.length_scale.scale_query(
                query,
                key.shape[-2],
                attn_mask=attn_mask,
                is_causal=is_causal,
                key_lengths=key_lengths,
                layer_input=layer_input,
            )
        return entmax_attention_weights(
            query,
            key,
            alpha=alpha_value(self.alpha),
            attn_mask=attn_mask,
            is_causal=is_causal,
            scale=self.scale,
            key_lengths=key_lengths,
            alibi_slopes=self.alibi_slopes,
            softcap=self.softcap,
            sinks=self.sinks,
            enable_gqa=enable_gqa,
            backend=self.backend,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        alpha = "" if isinstance(self.alpha, LearnedAlpha) else f", alpha={self.alpha}"
        softcap = "" if self.softcap is None else f", softcap={self.softcap}"
        return f"{self.num_heads}{alpha}, dropout={self.dropout}{softcap}"
