"""A timed case of attention: adasparse and a baseline on the same tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import adasparse
from adasparse.bench import calls
from adasparse.bench.calls import ADASPLASH, BOTH, FORWARD, PACKAGE, SOFTMAX, Call
from adasparse.bench.devices import DTYPES
from adasparse.bench.results import Row, Settings
from adasparse.bench.timing import best_times

#: Alphas of the first and the last head where they are learned; the others lie evenly between.
LEARNED_ALPHAS = (1.05, 1.95)


@dataclass(frozen=True, kw_only=True)
class TimedCase:
    """Sequences of standard normal tokens, and how they attend to themselves.

    Args:
        name: Name on the command line.
        title: Name in tables.
        batch, num_heads, length, head_dim: Sizes of query, key and value.
        alpha: None for one learned alpha per head.
        baseline: Name of the baseline; PACKAGE and ADASPLASH are for cases without padding and
            dropout, the second for GPUs.
        is_causal: Causal masking, in both functions, as are the next two.
        is_padded: Whether sequences have anything from a third to all of the keys.
        dropout_p: Share of the weights to drop.
        dtype: Name of the dtype of all tensors; None for that of the settings.
        bars: Smallest acceptable speedups, of forward and backward together and of forward alone.
    """

    name: str
    title: str = "α = 1.5"
    batch: int = 1
    num_heads: int = 8
    length: int
    head_dim: int = 64
    alpha: float | None = 1.5
    baseline: str = SOFTMAX
    is_causal: bool = False
    is_padded: bool = False
    dropout_p: float = 0.0
    dtype: str | None = None
    bars: tuple[float | None, float | None] = (None, None)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape ``(b, h, n, d)`` of query, key and value."""
        return self.batch, self.num_heads, self.length, self.head_dim

    def quick(self) -> "TimedCase":
        """Take an eighth of the tokens; the bars are not meant for those."""
        batch, length = self.batch, self.length
        batch, length = (batch // 8, length) if batch >= 8 else (batch, max(1, length // 8))
        return replace(self, batch=batch, length=length, bars=(None, None))

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""
        if self.baseline == PACKAGE and not calls.has_entmax_package():
            return calls.PACKAGE_MISSING
        if self.baseline == ADASPLASH and not calls.has_adasplash():
            return calls.ADASPLASH_MISSING
        return None

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Time each direction. The seed alone decides on the data."""
        generator = torch.Generator().manual_seed(settings.seed)
        dtype = DTYPES[self.dtype or settings.dtype]
        *inputs, grad = (
            torch.randn(self.shape, generator=generator).to(settings.device, dtype)
            for _ in range(4)
        )
        lengths = None
        if self.is_padded:
            few, most = self.length // 3, self.length
            lengths = torch.randint(few, most + 1, (self.batch,), generator=generator)
            lengths = lengths.to(settings.device)
        known, (ours, learned) = self._known(lengths), self._ours(lengths, settings.device)
        yield self._row(
            settings,
            direction=BOTH,
            known=calls.both(known, *inputs, grad=grad),
            ours=calls.both(ours, *inputs, grad=grad, learned=learned),
            bar=self.bars[0],
        )
        yield self._row(
            settings,
            direction=FORWARD,
            known=calls.forward(known, *inputs),
            ours=calls.forward(ours, *inputs),
            bar=self.bars[1],
        )

    def _known(self, lengths: Tensor | None) -> Callable[..., Tensor]:
        if self.baseline == PACKAGE:
            return calls.package_attention
        if self.baseline == ADASPLASH:
            assert self.alpha is not None
            return calls.adasplash(alpha=self.alpha, is_causal=self.is_causal)
        mask = None
        if lengths is not None:
            keys = torch.arange(self.length, device=lengths.device)
            mask = (keys < lengths[:, None])[:, None, None]  # (b, 1, 1, k)
        return partial(
            functional.scaled_dot_product_attention,
            attn_mask=mask,
            is_causal=self.is_causal,
            dropout_p=self.dropout_p,
        )

    def _ours(
        self, lengths: Tensor | None, device: str
    ) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
        """Our function, and what it learns."""
        alpha = torch.linspace(*LEARNED_ALPHAS, self.num_heads, device=device).requires_grad_()
        function = partial(
            adasparse.entmax_attention,
            alpha=alpha if self.alpha is None else self.alpha,
            is_causal=self.is_causal,
            dropout_p=self.dropout_p,
            key_lengths=lengths,
        )
        return function, (alpha,) if self.alpha is None else ()

    def _row(
        self, settings: Settings, *, direction: str, known: Call, ours: Call, bar: float | None
    ) -> Row:
        times = best_times(
            {"known": known, "ours": ours},
            repeats=settings.rounds,
            seconds=settings.seconds,
            device=settings.device,
        )
        return {
            "alpha": "learned" if self.alpha is None else self.alpha,
            "baseline": self.baseline,
            "direction": direction,
            "ms": 1000 * times["ours"],
            "baseline_ms": 1000 * times["known"],
            "ratio": times["known"] / times["ours"],
            "bar": bar if settings.device == "cpu" else None,
        }
