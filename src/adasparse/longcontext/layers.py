"""The layers of a long-context model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from adasparse.integrations.calls import AttentionCall, observed
from adasparse.integrations.huggingface.internals import collects_attentions
from adasparse.longcontext.attention import attend
from adasparse.longcontext.config import (
    DENSE_KINDS,
    LEARNED_KINDS,
    LENGTH_SCALES,
    LongContextConfig,
)
from adasparse.longcontext.rotary import rotate, rotation
from adasparse.longcontext.visibility import Visibility
from adasparse.nn import LearnedAlpha, LengthScale, alibi_slopes, nape_slopes


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerContext:
    """Values that one forward pass computes once for all layers.

    Args:
        visibility: Visible keys of each query.
        turn: Cosines and sines of RoPE, or None.
        slopes: ALiBi slopes ``(h,)``, or None.
    """

    visibility: Visibility
    turn: tuple[Tensor, Tensor] | None
    slopes: Tensor | None


def layer_context(
    config: LongContextConfig, visibility: Visibility, dtype: torch.dtype
) -> LayerContext:
    """Encode the positions as ``config.positions`` says."""
    turn = slopes = None
    device = visibility.positions.device
    if config.positions == "rope":
        assert config.head_dim is not None
        turn = rotation(visibility.positions, config.head_dim, theta=config.rope_theta, dtype=dtype)
    elif config.positions == "alibi":
        slopes = alibi_slopes(config.num_attention_heads).to(device)
    elif config.positions == "nape":
        slopes = nape_slopes(config.num_attention_heads).to(device)
    return LayerContext(visibility=visibility, turn=turn, slopes=slopes)


def scaled_heads(config: LongContextConfig) -> range:
    """Return the heads whose scores are scaled by length: under NAPE those without slopes."""
    first = config.num_attention_heads // 2 if config.positions == "nape" else 0
    return range(first, config.num_attention_heads)


class LongContextAttention(nn.Module):
    """Causal self-attention as ``config.attention`` and ``config.positions`` say.

    Shape:
        ``(b, q, n)`` to ``(b, q, n)``, and the weights ``(b, h, q, k)`` if they are asked for.
    """

    alpha: float | LearnedAlpha

    def __init__(self, config: LongContextConfig, layer_idx: int) -> None:
        super().__init__()
        h, g = config.num_attention_heads, config.num_key_value_heads
        width, d = config.hidden_size, config.head_dim
        assert g is not None and d is not None
        self.layer_idx = layer_idx
        self.head_dim = d
        self.adapts_temperature = config.attention == "adaptive-temperature"
        self.q_proj = nn.Linear(width, h * d, bias=False)
        self.k_proj = nn.Linear(width, g * d, bias=False)
        self.v_proj = nn.Linear(width, g * d, bias=False)
        self.o_proj = nn.Linear(h * d, width, bias=False)
        if config.attention in LEARNED_KINDS:
            self.alpha = LearnedAlpha(h, init=config.alpha)
        else:
            self.alpha = 1.0 if config.attention in DENSE_KINDS else float(config.alpha)
        kind = LENGTH_SCALES.get(config.attention)
        self.length_scale = None
        if kind is not None:
            self.length_scale = LengthScale(
                h,
                kind=kind,
                embed_dim=width if kind == "adaptive" else None,
                heads=scaled_heads(config),
            )

    def forward(
        self, x: Tensor, *, context: LayerContext, past_key_values: Cache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to ``x`` and to the cached tokens."""
        call = observed(self.prepare(x, context=context, past_key_values=past_key_values))
        output = self.o_proj(attend(call).transpose(1, 2).flatten(2))
        return output, call.weights() if collects_attentions() else None

    def prepare(
        self, x: Tensor, *, context: LayerContext, past_key_values: Cache | None
    ) -> AttentionCall:
        """Return the attention call of ``x``."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if context.turn is not None:
            query, key = rotate(query, context.turn), rotate(key, context.turn)
        if past_key_values is not None:
            num_keys = context.visibility.num_keys
            key, value = past_key_values.update(key, value, self.layer_idx)
            if key.shape[2] > num_keys:  # a static cache
                key, value = key[:, :, :num_keys], value[:, :, :num_keys]
        if self.length_scale is not None:
            factor = self.length_scale(context.visibility.num_visible(), x)
            query = (query * factor).to(query.dtype)
        return AttentionCall(
            module=self,
            query=query,
            key=key,
            value=value,
            alpha=self.alpha() if isinstance(self.alpha, LearnedAlpha) else self.alpha,
            mask=context.visibility.attn_mask(context.slopes),
            is_causal=context.visibility.is_causal,
            slopes=context.slopes,
            adapts_temperature=self.adapts_temperature and not self.training,
        )


class LongContextMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))``, ``(b, q, n)`` to ``(b, q, n)``."""

    def __init__(self, config: LongContextConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token by itself."""
        output: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class LongContextLayer(GradientCheckpointingLayer):
    """Attention and MLP, each of a normalized input and added to it: ``(b, q, n)`` to the same."""

    def __init__(self, config: LongContextConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = LongContextAttention(config, layer_idx)
        self.mlp = LongContextMLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, *, context: LayerContext, past_key_values: Cache | None = None
    ) -> Tensor:
        """Run both."""
        attended, _ = self.self_attn(
            self.input_layernorm(x), context=context, past_key_values=past_key_values
        )
        x = x + self.dropout(attended)
        transformed = self.mlp(self.post_attention_layernorm(x))
        output: Tensor = x + self.dropout(transformed)
        return output
