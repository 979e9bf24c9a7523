"""One call of attention of a long-context model, and the quickest way to its result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from adasparse.functional.attention import entmax_attention, entmax_attention_weights
from adasparse.longcontext.nearby import causal_attention
from adasparse.longcontext.temperature import (
    adaptive_temperature_attention,
    adaptive_temperature_weights,
)
from adasparse.longcontext.visibility import Visibility


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCall:
    """What is attended to, and how.

    Args:
        module: The attention module that calls.
        query: ``(b, h, q, d)``, rotated and scaled by length where that applies.
        key: ``(b, g, k, d)``.
        value: ``(b, g, k, d)``.
        alpha: A number, or one per head ``(h,)``; 1 is softmax.
        slopes: Of ALiBi, ``(h,)``, 0 for heads without positions; or None.
        visibility: Which keys each query sees.
        adapts_temperature: Whether softmax is sharpened by its entropy.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    alpha: float | Tensor
    slopes: Tensor | None
    visibility: Visibility
    adapts_temperature: bool

    def options(self) -> dict[str, Any]:
        """Return what all functions of attention take."""
        return {
            "attn_mask": self.visibility.attn_mask(self.slopes),
            "is_causal": self.visibility.is_causal,
            "alibi_slopes": self.slopes,
        }

    def output(self) -> Tensor:
        """Attend: ``(b, h, q, d)``, without a matrix of all weights.

        Softmax goes to PyTorch where there is nothing to add to its scores. For biases and for
        padding PyTorch would need a matrix, and twice the time at 2048 tokens; ``entmax_attention``
        with an alpha of 1 is the same softmax. Heads with slopes score nearby keys only.
        """
        options = self.options()
        tensors = self.query, self.key, self.value
        if self.adapts_temperature:
            return adaptive_temperature_attention(*tensors, **options)
        is_softmax = isinstance(self.alpha, float) and self.alpha == 1
        if is_softmax and options["attn_mask"] is None and self.slopes is None:
            is_causal = self.visibility.is_causal
            return scaled_dot_product_attention(*tensors, is_causal=is_causal, enable_gqa=True)
        if self.slopes is not None and self.visibility.is_causal and options["attn_mask"] is None:
            return causal_attention(*tensors, alpha=self.alpha, slopes=self.slopes)
        return entmax_attention(*tensors, alpha=self.alpha, enable_gqa=True, **options)

    def weights(self) -> Tensor:
        """Return the whole matrix of weights ``(b, h, q, k)``."""
        if self.adapts_temperature:
            return adaptive_temperature_weights(self.query, self.key, **self.options())
        weights: Tensor = entmax_attention_weights(
            self.query, self.key, alpha=self.alpha, enable_gqa=True, **self.options()
        )
        return weights


_watchers: list[Callable[[AttentionCall], None]] = []


@contextmanager
def watching(watcher: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Have ``watcher`` called with every call of attention of long-context models meanwhile."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def tell_watchers(call: AttentionCall) -> None:
    """Call everyone who watches."""
    for watcher in list(_watchers):
        watcher(call)
