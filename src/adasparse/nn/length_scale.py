"""Factors that sharpen scores in longer contexts: those of ASEntmax and SSMax."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

LengthScaleKind = Literal["adaptive", "per_head", "ssmax"]

#: Scales start at 1 + this, close to attention without any.
_FIRST_BETA = 0.05


def visible_keys(
    num_queries: int,
    num_keys: int,
    *,
    is_causal: bool = False,
    key_lengths: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Count the keys that each query can see; padding is none of them.

    Args:
        num_queries: Number of queries ``q``.
        num_keys: Number of keys ``k``.
        is_causal: Whether query i sees keys 0 to i only.
        key_lengths: Number of keys before the padding, integers ``(b,)``.
        attn_mask: Broadcasts to ``(b, h, q, k)``. Bool: True where a key takes part. Float: a key
            takes part unless it gets ``-inf``, or the lowest number of a dtype in its place.
        window: Sliding window ``(left, right)`` around the position of each query.
        device: Device of the result; that of a given tensor if None.

    Returns:
        Integers that broadcast to ``(b, h, q, 1)``.

    Example:
        >>> visible_keys(4, 4, is_causal=True, key_lengths=torch.tensor([4, 2])).squeeze()
        tensor([[1, 2, 3, 4],
                [1, 2, 2, 2]])
    """
    for given in (attn_mask, key_lengths):
        device = given.device if device is None and given is not None else device
    left, right = window or (None, None)
    place = torch.arange(num_queries, device=device).unsqueeze(-1)
    if attn_mask is None:
        limits = [0] if is_causal else []
        limits += [] if right is None else [right]
        last = (place + 1 + min(limits)) if limits else torch.full_like(place[:1], num_keys)
        last = last.clamp(max=num_keys)
        if key_lengths is not None:
            last = last.minimum(_to_batch(key_lengths))
        return last if left is None else (last - (place - left).clamp(min=0)).clamp(min=0)
    can_see = attn_mask
    if attn_mask.is_floating_point():
        can_see = attn_mask > torch.finfo(attn_mask.dtype).min / 2
    can_see = can_see.expand(*can_see.shape[:-1], num_keys)
    key = torch.arange(num_keys, device=device)
    if is_causal:
        can_see = can_see & (key <= place)
    if left is not None:
        can_see = can_see & (key >= place - left)
    if right is not None:
        can_see = can_see & (key <= place + right)
    if key_lengths is not None:
        can_see = can_see & (key < _to_batch(key_lengths))
    return can_see.sum(-1, keepdim=True)


def _to_batch(lengths: Tensor) -> Tensor:
    """``(...)`` as ``(..., 1, 1, 1)``."""
    return lengths[..., None, None, None]


class LengthScale(nn.Module):
    """A learned factor of each query that grows with the number ``n`` of keys it can see.

    More keys dilute attention; a factor that rises with their logarithm makes up for it. It
    multiplies the query, and with it the scores before any position bias is added.

    - ``"adaptive"``, as in [ASEntmax](https://arxiv.org/abs/2506.16640): 1 + β·log(n + 1)^γ with
      β = softplus(w_β·x + b_β) and γ = 2·tanh(w_γ·x + b_γ) of the layer input x of each query;
    - ``"per_head"``: the same with β and γ free parameters;
    - ``"ssmax"``, as in [SSMax](https://arxiv.org/abs/2501.19399): s·log(n + 1).

    Adaptive and per-head factors start at 1.05 for every length, with w and γ zero; SSMax starts
    with s = 1. In causal attention without padding query i sees
    ``n = i + 1`` keys, so that ``log(n + 1)`` is the log(i + 2) of the literature.

    Args:
        num_heads: Number of heads ``h``.
        kind: Formula of the factor.
        embed_dim: Size of the layer input; for ``"adaptive"`` only.
        heads: Heads that have a factor, all if None; that of the others is exactly 1.
        device: Device of the parameters.
        dtype: Dtype of the parameters; factors are computed in float32 or float64 at all times.

    References:
        - Vasylenko et al., [Long-Context Generalization with Sparse
          Attention](https://arxiv.org/abs/2506.16640), 2025: ASEntmax.
        - Nakanishi, [Scalable-Softmax Is Superior for
          Attention](https://arxiv.org/abs/2501.19399), 2025: SSMax.

    Example:
        >>> scale = LengthScale(2, kind="ssmax")
        >>> scale(visible_keys(3, 3, is_causal=True)).squeeze(-1)
        tensor([[0.6931, 1.0986, 1.3863],
                [0.6931, 1.0986, 1.3863]], grad_fn=<SqueezeBackward1>)
        >>> adaptive = LengthScale(2, kind="adaptive", embed_dim=8)
        >>> adaptive(visible_keys(3, 3), torch.randn(5, 3, 8)).shape
        torch.Size([5, 2, 3, 1])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        kind: LengthScaleKind = "adaptive",
        embed_dim: int | None = None,
        heads: Sequence[int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1; got {num_heads}.")
        if kind not in get_args(LengthScaleKind):
            raise ValueError(f"kind must be one of {get_args(LengthScaleKind)}; got {kind!r}.")
        if (kind == "adaptive") != (embed_dim is not None):
            raise ValueError(
                'embed_dim, the size of the layer input, is required by kind="adaptive", which '
                f"alone takes it; got kind={kind!r} and embed_dim={embed_dim}."
            )
        self.num_heads = num_heads
        self.kind = kind
        self.embed_dim = embed_dim
        self.heads = tuple(range(num_heads)) if heads is None else _check_heads(heads, num_heads)

        # Not linear layers, which code that initializes a whole model would overwrite.
        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        if embed_dim is not None:
            self.beta_weight = parameter(len(self.heads), embed_dim)
            self.beta_bias = parameter(len(self.heads))
            self.gamma_weight = parameter(len(self.heads), embed_dim)
            self.gamma_bias = parameter(len(self.heads))
        elif kind == "per_head":
            self.beta = parameter(len(self.heads))
            self.gamma = parameter(len(self.heads))
        else:
            self.factor = parameter(len(self.heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset to a factor of 1.05, or of log(n + 1) for SSMax."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        if self.kind == "adaptive":
            nn.init.constant_(self.beta_bias, math.log(math.expm1(_FIRST_BETA)))
        elif self.kind == "per_head":
            nn.init.constant_(self.beta, _FIRST_BETA)
        else:
            nn.init.ones_(self.factor)

    def forward(self, visible: Tensor, layer_input: Tensor | None = None) -> Tensor:
        """Return the factor of the queries.

        Args:
            visible: Number of keys that each query sees, as counted by ``visible_keys``;
                broadcasts to ``(b, h, q, 1)``. Queries that see none count as if they saw one.
            layer_input: ``(b, q, embed_dim)``, read by ``"adaptive"`` only.

        Returns:
            Broadcasts to ``(b, h, q, 1)``, in float32, or float64 if the parameters are.
        """
        scales_all = len(self.heads) == self.num_heads
        if not scales_all and visible.dim() > 2 and visible.shape[-3] != 1:
            visible = torch.stack([visible.select(-3, head) for head in self.heads], -3)
        if self.kind == "ssmax":
            factor = _per_head(self.factor)
            scale = factor * _log_length(visible, factor.dtype)
        else:
            beta, gamma = self.beta_and_gamma(layer_input)
            scale = 1 + beta * _log_length(visible, beta.dtype) ** gamma
        if scales_all:
            return scale
        one = scale.new_ones(()).expand(*scale.shape[:-3], *scale.shape[-2:])
        scales = dict(zip(self.heads, scale.unbind(-3), strict=True))
        return torch.stack([scales.get(head, one) for head in range(self.num_heads)], -3)

    def scale_query(
        self,
        query: Tensor,
        num_keys: int,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        key_lengths: Tensor | None = None,
        layer_input: Tensor | None = None,
    ) -> Tensor:
        """Return the query ``(b, h, q, d)`` times its factor, in its dtype.

        The other arguments are those of ``visible_keys`` and ``forward``.
        """
        visible = visible_keys(
            query.shape[-2],
            num_keys,
            is_causal=is_causal,
            key_lengths=key_lengths,
            attn_mask=attn_mask,
            device=query.device,
        )
        factor: Tensor = self(visible, layer_input)
        return (query * factor).to(query.dtype)

    def beta_and_gamma(self, layer_input: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return β and γ of the scaled heads, in float32 or float64.

        Args:
            layer_input: ``(..., q, embed_dim)``, read by ``"adaptive"`` only.

        Returns:
            Both as ``(..., h, q, 1)``, or ``(h, 1, 1)`` where all queries share them.
        """
        if self.kind == "ssmax":
            raise ValueError('β and γ belong to kind="adaptive" and "per_head"; got kind="ssmax".')
        if self.kind == "per_head":
            return _per_head(self.beta), _per_head(self.gamma)
        if layer_input is None or layer_input.shape[-1] != self.embed_dim:
            raise ValueError(
                f"layer_input must have the shape (b, q, {self.embed_dim}); "
                f"got {None if layer_input is None else tuple(layer_input.shape)}."
            )
        beta = _per_query(linear(layer_input, self.beta_weight, self.beta_bias))
        gamma = _per_query(linear(layer_input, self.gamma_weight, self.gamma_bias))
        return softplus(beta), 2 * gamma.tanh()

    def extra_repr(self) -> str:
        """Show the settings."""
        heads = "" if len(self.heads) == self.num_heads else f", heads={self.heads}"
        size = "" if self.embed_dim is None else f", embed_dim={self.embed_dim}"
        return f"{self.num_heads}, kind={self.kind!r}{size}{heads}"


def _check_heads(heads: Sequence[int], num_heads: int) -> tuple[int, ...]:
    indices = tuple(sorted(heads))
    outside = [i for i in indices if not 0 <= i < num_heads]
    if outside or not indices or len(set(indices)) < len(indices):
        raise ValueError(
            f"heads must name some of the heads 0 to {num_heads - 1}, each once; got {indices}."
        )
    return indices


def _in_full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _per_head(x: Tensor) -> Tensor:
    """``(h,)`` as ``(h, 1, 1)``."""
    return _in_full(x)[:, None, None]


def _per_query(x: Tensor) -> Tensor:
    """``(b, q, h)`` as ``(b, h, q, 1)``."""
    # Contiguous: a compiled backward would view it otherwise than it lies.
    return _in_full(x).transpose(-1, -2).contiguous().unsqueeze(-1)


def _log_length(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return visible.clamp(min=1).to(dtype).log1p()


def check_length_scale(length_scale: LengthScale | None, num_heads: int) -> LengthScale | None:
    """Return a length scale that fits attention of ``num_heads`` heads, or raise."""
    if length_scale is not None and length_scale.num_heads != num_heads:
        raise ValueError(
            f"length_scale must have {num_heads} heads, as many as the attention; "
            f"got {length_scale.num_heads}."
        )
    return length_scale
