"""Multi-head attention as a drop-in for PyTorch's own."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from adasparse.functional import entmax_attention, entmax_attention_weights
from adasparse.nn.alpha import LearnedAlpha, alpha_value, as_alpha
from adasparse.nn.length_scale import LengthScale, check_length_scale
from adasparse.nn.masks import MaskArguments, translate_masks
from adasparse.nn.multihead_inputs import check_inputs, check_nested


def _stay_off_the_fast_path(module: nn.Module, args: Any) -> None:
    """Do nothing, which is a hook nevertheless."""


class MultiheadAttention(nn.MultiheadAttention):
    """Drop-in for ``torch.nn.MultiheadAttention`` with adaptively sparse heads.

    Constructor, forward, return value and checkpoints are those of PyTorch; at ``alpha=1.0`` so are
    the results. A checkpoint of PyTorch's module loads with ``strict=True`` and leaves alpha and
    length scale as they are.

    Queries that see no key get zeros where PyTorch gives NaN. Under ``is_causal`` any ``attn_mask``
    is taken to be the causal one and not read, and may be left out; keys from ``add_bias_kv`` and
    ``add_zero_attn`` are seen by all queries even then.

    Can be the ``self_attn`` or ``multihead_attn`` of ``torch.nn.TransformerEncoderLayer`` and
    ``TransformerDecoderLayer``. Their inference fast path supports softmax only; it is not taken
    for modules with a hook, so this module has one that does nothing.

    Args:
        embed_dim: Size of the model, ``num_heads`` times that of a head.
        num_heads: Number of heads ``h``.
        dropout: Probability of dropping a weight in training.
        bias: Whether projections have a bias.
        add_bias_kv: Whether to append a learned key and value.
        add_zero_attn: Whether to append a key and value of zeros.
        kdim: Size of keys, ``embed_dim`` if None.
        vdim: Size of values, ``embed_dim`` if None.
        batch_first: Whether the batch comes before the sequence in 3-D tensors.
        device: Device of the parameters.
        dtype: Dtype of the projections; alpha stays in float32.
        alpha: A number of at least 1 for all heads, or ``LearnedAlpha``, made if None.
        length_scale: Factor of the query that grows with the number of keys.
        alibi_slopes: Slopes ``(h,)`` by which scores fall with each step of distance.

    Example:
        >>> attention = MultiheadAttention(64, 8, batch_first=True)
        >>> x = torch.randn(2, 10, 64)
        >>> output, _ = attention(x, x, x, need_weights=False)
        >>> output.shape
        torch.Size([2, 10, 64])
        >>> attention.load_state_dict(torch.nn.MultiheadAttention(64, 8).state_dict())
        <All keys matched successfully>
    """

    alpha: float | LearnedAlpha
    alibi_slopes: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        alpha: float | LearnedAlpha | None = None,
        length_scale: LengthScale | None = None,
        alibi_slopes: Tensor | None = None,
    ) -> None:
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                "embed_dim must be a multiple of num_heads, both at least 1; "
                f"got {embed_dim} and {num_heads}."
            )
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be from 0 to 1; got {dropout}.")
        if alibi_slopes is not None and (add_bias_kv or add_zero_attn):
            raise ValueError(
                "alibi_slopes need keys that have a position, which those of add_bias_kv and "
                f"add_zero_attn have not; got add_bias_kv={add_bias_kv} and "
                f"add_zero_attn={add_zero_attn}."
            )
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        self.register_forward_pre_hook(_stay_off_the_fast_path)
        self.alpha = as_alpha(alpha, num_heads, device)
        self.length_scale = check_length_scale(length_scale, num_heads)
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; through the fused kernel if no weights are needed.

        Args:
            query: ``(q, embed_dim)``, or with a batch ``(q, b, embed_dim)``, ``(b, q, embed_dim)``
                if ``batch_first``.
            key: ``(k, kdim)`` likewise.
            value: ``(k, vdim)`` likewise.
            key_padding_mask: ``(b, k)``. Bool: True where a key is masked. Float: added.
            need_weights: Whether to return weights too.
            attn_mask: ``(q, k)`` or ``(b * h, q, k)``, bool or float as above.
            average_attn_weights: Whether weights are the mean over heads.
            is_causal: Whether query i sees keys 0 to i only; ``attn_mask`` is then not read.

        Returns:
            The output in the shape of ``query``, and None or the weights, in training after
            dropout: ``(b, q, k)`` on average, or ``(b, h, q, k)``.
        """
        if query.is_nested:
            check_nested(
                query, key, value, key_padding_mask, attn_mask, batch_first=self.batch_first
            )
            return self._attend_nested(
                (query, key, value), need_weights, average_attn_weights, is_causal
            )
        check_inputs(
            query,
            key,
            value,
            key_padding_mask,
            attn_mask,
            features=(self.embed_dim, self.kdim, self.vdim),
            num_heads=self.num_heads,
            batch_first=self.batch_first,
        )
        is_batched = query.dim() == 3
        batch_dim = 1 if is_batched and not self.batch_first else 0
        q, k, v = (self._to_heads(x, batch_dim) for x in self._project(query, key, value))
        if key_padding_mask is not None and not is_batched:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        masks = translate_masks(
            key_padding_mask,
            attn_mask,
            is_causal=is_causal,
            sizes=(*q.shape[:3], k.shape[2]),
            num_extra_keys=(self.bias_k is not None) + self.add_zero_attn,
            device=query.device,
        )
        k, v = self._append(k, self.bias_k), self._append(v, self.bias_v)
        if self.length_scale is not None:
            layer_input = query.transpose(0, 1) if batch_dim == 1 else query
            q = self.length_scale.scale_query(q, k.shape[2], layer_input=layer_input, **masks)
        output, weights = self._attend(q, k, v, masks, need_weights)
        order = (0, 2, 1, 3) if batch_dim == 0 else (2, 0, 1, 3)
        output = self.out_proj(output.permute(order).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if is_batched:
            return output, weights
        return output.squeeze(0), None if weights is None else weights.squeeze(0)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, masks: MaskArguments, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return ``(b, h, q, d)``, and the weights ``(b, h, q, k)`` if needed."""
        if need_weights:
            weights = entmax_attention_weights(
                q,
                k,
                alpha=alpha_value(self.alpha),
                alibi_slopes=self.alibi_slopes,
                **masks,
            )
            weights = dropout(weights, self.dropout, self.training)
            return weights @ v, weights
        output = entmax_attention(
            q,
            k,
            v,
            alpha=alpha_value(self.alpha),
            dropout_p=self.dropout if self.training else 0.0,
            alibi_slopes=self.alibi_slopes,
            **masks,
        )
        return output, None

    def _attend_nested(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        need_weights: bool,
        average_attn_weights: bool,
        is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Pad nested tensors, which an encoder may make of its padding, and attend."""
        query, key, value = inputs
        padded = {id(x): x.to_padded_tensor(0.0) for x in inputs}
        lengths = [len(sequence) for sequence in query.unbind()]
        ends = torch.tensor([len(sequence) for sequence in key.unbind()], device=key.device)
        is_padding = torch.arange(padded[id(key)].shape[1], device=key.device) >= ends[:, None]
        output, weights = self.forward(
            padded[id(query)],
            padded[id(key)],
            padded[id(value)],
            key_padding_mask=is_padding,
            need_weights=need_weights,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        sequences = [row[:length] for row, length in zip(output, lengths, strict=True)]
        return torch.nested.as_nested_tensor(sequences, layout=query.layout), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Project each; what is the same tensor in one go."""
        bias = self._in_bias()
        if self.in_proj_weight is None:
            weights: tuple[Tensor, ...] = (
                self.q_proj_weight,
                self.k_proj_weight,
                self.v_proj_weight,
            )
        elif query is key and key is value:
            return linear(query, self.in_proj_weight, bias).chunk(3, -1)
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(
            linear(x, weight, own)
            for x, weight, own in zip((query, key, value), weights, biases, strict=True)
        )

    def _in_bias(self) -> Tensor | None:
        """Return the bias of the projections in the dtype of their weights, which it may not have.

        PyTorch's module adds it after a product whose dtype is then that of both.
        """
        if self.in_proj_bias is None:
            return None
        weight = self.q_proj_weight if self.in_proj_weight is None else self.in_proj_weight
        return self.in_proj_bias.to(weight.dtype)

    def _to_heads(self, x: Tensor, batch_dim: int) -> Tensor:
        """``(b, n, h * d)``, ``(n, b, h * d)`` or ``(n, h * d)`` as ``(b, h, n, d)``."""
        x = x.unflatten(-1, (self.num_heads, self.head_dim))
        if x.dim() == 3:
            x = x.unsqueeze(0)
        return x.permute(0, 2, 1, 3) if batch_dim == 0 else x.permute(1, 2, 0, 3)

    def _append(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Add the keys, or the values, that are not in the sequence."""
        b, h, _, d = x.shape
        parts = [x]
        if bias is not None:
            parts.append(bias.reshape(1, h, 1, d).expand(b, h, 1, d))
        if self.add_zero_attn:
            parts.append(x.new_zeros(b, h, 1, d))
        return torch.cat(parts, 2) if len(parts) > 1 else x

    def _reset_parameters(self) -> None:
        """Initialize projections as PyTorch does."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        if self.bias_k is not None and self.bias_v is not None:
            nn.init.xavier_normal_(self.bias_k)
            nn.init.xavier_normal_(self.bias_v)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Complete a checkpoint of PyTorch's module with what that does not have."""
        own = {
            prefix + name: parameter
            for name, parameter in self.named_parameters()
            if name.startswith(("alpha.", "length_scale."))
        }
        if f"{prefix}out_proj.weight" in state_dict and not own.keys() & state_dict.keys():
            state_dict.update(own)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        """Show the settings."""
        alpha = "" if isinstance(self.alpha, LearnedAlpha) else f", alpha={self.alpha}"
        return f"{self.embed_dim}, {self.num_heads}{alpha}, dropout={self.dropout}"
