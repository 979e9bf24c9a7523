"""The visible keys of the queries of a causal model, with padding and with a cache."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Visibility:
    """The keys, of ``k``, that each of the last ``q`` of them sees as a query.

    Args:
        num_keys: Number of keys ``k``.
        positions: Number of tokens before each query, ``(b, q)`` or ``(1, q)``. Padding is no
            token, wherever it is.
        is_causal: Whether query i sees keys 0 to i only; the queries are all of the keys then.
        mask: Bool ``(b, 1, 1, k)`` or ``(b, 1, q, k)``, True where a key takes part; None where
            ``is_causal`` says it all. A matrix only for several queries after cached ones.
        padding_after: Amount of padding after each key, ``(b, 1, 1, k)``; None unless there is
            padding between tokens.
    """

    num_keys: int
    positions: Tensor
    is_causal: bool
    mask: Tensor | None = None
    padding_after: Tensor | None = None

    def num_visible(self) -> Tensor:
        """Count the keys that each query sees, itself included: ``(b, 1, q, 1)``."""
        return (self.positions + 1)[:, None, :, None]

    def attn_mask(self, slopes: Tensor | None) -> Tensor | None:
        """Return the mask of attention for given ALiBi slopes ``(h,)``.

        Padding between tokens is no distance: it is given back to the scores of the keys before
        it. For all keys alike it does not matter, which is why the query does not.
        """
        if slopes is None or self.padding_after is None or self.mask is None:
            return self.mask
        bonus = slopes[:, None, None] * self.padding_after
        return bonus.masked_fill(~self.mask, -torch.inf)


def visibility_of(
    attention_mask: Tensor | None, *, num_queries: int, num_past: int, device: torch.device
) -> Visibility:
    """Return the keys visible to queries that come after ``num_past`` keys in a cache.

    Args:
        attention_mask: ``(b, k)``, nonzero where there is a token; all are tokens if None.
        num_queries: Number of queries ``q``.
        num_past: Number of cached keys ``k - q``.
        device: Device of the result.
    """
    num_keys = num_past + num_queries
    is_causal = num_past == 0 and num_queries > 1
    past = None if is_causal or num_queries == 1 else _past(num_queries, num_keys, device)
    if attention_mask is None:
        positions = torch.arange(num_past, num_keys, device=device).unsqueeze(0)
        return Visibility(
            num_keys=num_keys,
            positions=positions,
            is_causal=is_causal,
            mask=None if past is None else past[None, None],
        )
    if attention_mask.dim() != 2 or attention_mask.shape[1] != num_keys:
        raise ValueError(
            f"attention_mask must have the shape (b, {num_keys}), one value for each of {num_past} "
            f"cached and {num_queries} new tokens; got {tuple(attention_mask.shape)}."
        )
    is_token = attention_mask.to(device) != 0
    positions = (is_token.cumsum(1) - 1).clamp(min=0)[:, num_past:]
    mask: Tensor | None = is_token[:, None, None]
    if past is not None:
        mask = past & is_token[:, None, None]
    elif _needs_no_mask(is_token, is_causal):
        mask = None
    return Visibility(
        num_keys=num_keys,
        positions=positions,
        is_causal=is_causal,
        mask=mask,
        padding_after=_padding_after(is_token) if _has_gap(is_token) else None,
    )


def _past(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """``(q, k)``, True where a key does not come after the query; the last of both are the same."""
    last = torch.arange(num_keys - num_queries, num_keys, device=device)
    return torch.arange(num_keys, device=device) <= last.unsqueeze(-1)


def _needs_no_mask(is_token: Tensor, is_causal: bool) -> bool:
    """Whether no token would see padding without a mask; only padding sees padding at the end."""
    if is_causal:
        return bool((is_token[:, 1:] <= is_token[:, :-1]).all())
    return bool(is_token.all())


def _has_gap(is_token: Tensor) -> bool:
    """Whether in some row tokens come before and after padding."""
    begins = (is_token[:, 1:] & ~is_token[:, :-1]).sum(1) + is_token[:, 0]
    return bool((begins > 1).any())


def _padding_after(is_token: Tensor) -> Tensor:
    padding = (~is_token).long()
    return (padding.sum(1, keepdim=True) - padding.cumsum(1))[:, None, None]
