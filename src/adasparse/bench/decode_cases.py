"""Cases of the decoding benchmark, each with the bar it should reach."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import adasparse
from adasparse.bench.calls import FORWARD, SOFTMAX, Call, forward
from adasparse.bench.devices import DTYPES
from adasparse.bench.results import Row, Settings
from adasparse.bench.timing import best_times

PACKED, PLAIN = "packed", "plain"
#: Numbers of keys of the timed cases.
LENGTHS = (1024, 4096, 16384, 65536)


def comparison(known: Call, ours: Call, settings: Settings, *, calls_of_each: int = 1) -> Row:
    """Return the times of both, in milliseconds for one of so many equal parts of a call."""
    times = best_times(
        {"known": known, "ours": ours},
        repeats=settings.rounds,
        seconds=settings.seconds,
        device=settings.device,
    )
    return {
        "baseline": SOFTMAX,
        "direction": FORWARD,
        "ms": 1000 * times["ours"] / calls_of_each,
        "baseline_ms": 1000 * times["known"] / calls_of_each,
        "ratio": times["known"] / times["ours"],
    }


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """One query per head against standard normal keys and values.

    Args:
        name: Name on the command line.
        title: Name in tables.
        keys: ``"packed"`` or ``"plain"``.
        num_heads: Heads of the query.
        num_key_heads: Heads of keys and values.
        length: Number of keys.
        head_dim: Size of a head.
        alpha: Exponent.
        bar: Smallest acceptable speedup.
    """

    name: str
    title: str
    keys: str = PACKED
    num_heads: int = 8
    num_key_heads: int = 8
    length: int
    head_dim: int = 64
    alpha: float = 1.5
    bar: float | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape ``(b, h, k, d)`` of the keys that queries see."""
        return 1, self.num_heads, self.length, self.head_dim

    def quick(self) -> "DecodeCase":
        """Take an eighth of the keys; the bar is not meant for those."""
        return replace(self, length=max(1, self.length // 8), bar=None)

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""
        if self.keys == PACKED and settings.device != "cpu":
            return f"{self.name}: the codes of packed keys are for CPUs"
        return None

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Time one call. The seed alone decides on the data."""
        generator = torch.Generator().manual_seed(settings.seed)
        sizes = (1, self.num_heads), (self.length, self.num_key_heads)
        query, key, value = (
            torch.randn(1, heads, n, self.head_dim, generator=generator).to(
                settings.device, DTYPES[settings.dtype]
            )
            for n, heads in (*sizes, sizes[1])
        )
        is_grouped = self.num_heads != self.num_key_heads
        softmax = partial(functional.scaled_dot_product_attention, enable_gqa=is_grouped)
        ours = partial(adasparse.entmax_attention, alpha=self.alpha, enable_gqa=is_grouped)
        keys = adasparse.PackedKeys(key) if self.keys == PACKED else key
        yield {
            "alpha": self.alpha,
            "keys": self.keys,
            "key_heads": self.num_key_heads,
            "bar": self.bar if settings.device == "cpu" else None,
            **comparison(
                forward(softmax, query, key, value), _call(ours, query, keys, value), settings
            ),
        }


def _call(function: Callable[..., Tensor], *arguments: object) -> Call:
    def call() -> Tensor:
        with torch.no_grad():
            return function(*arguments)

    return call


def _timed_cases() -> Iterator[DecodeCase]:
    groups: tuple[tuple[str, str, int, str, dict[int, float]], ...] = (
        ("heads", "8 heads", 8, PACKED, {4096: 2.0, 16384: 4.0, 65536: 6.0}),
        ("heads-plain", "8 heads", 8, PLAIN, {}),
        ("gqa", "32 heads on 8", 32, PACKED, {4096: 2.0, 16384: 4.0, 65536: 6.0}),
        ("gqa-plain", "32 heads on 8", 32, PLAIN, {4096: 1.2, 16384: 1.2, 65536: 1.2}),
    )
    for name, title, num_heads, keys, bars in groups:
        for length in LENGTHS:
            yield DecodeCase(
                name=f"{name}-{length // 1024}k",
                title=f"{title}, {keys} keys",
                keys=keys,
                num_heads=num_heads,
                length=length,
                bar=bars.get(length),
            )


TIMED_CASES: tuple[DecodeCase, ...] = tuple(_timed_cases())
