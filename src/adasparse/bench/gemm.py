"""Speed of the kernel's query-key product, relative to the machine's GEMM speed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from adasparse.bench.calls import FORWARD
from adasparse.bench.results import Row, Settings
from adasparse.bench.timing import best_times
from adasparse.kernels import cpu
from adasparse.kernels.problem import AttentionProblem


@dataclass(frozen=True, kw_only=True)
class GemmCase:
    """The speed of the scoring stage as a share of ``torch.matmul``'s.

    Args:
        name: Name on the command line.
        title: Name in tables.
        shape: ``(b, h, n, d)`` of query and key.
        size: Rows and columns of the matrices whose product is the machine's own speed.
        bar: Smallest acceptable share.
    """

    name: str
    title: str = "QKᵀ inside the kernel"
    shape: tuple[int, int, int, int]
    size: int
    bar: float | None = None

    def quick(self) -> "GemmCase":
        """Take an eighth of the tokens, and of the rows and columns."""
        b, h, n, d = self.shape
        shape = (b, h, max(1, n // 8), d)
        return replace(self, shape=shape, size=max(1, self.size // 8), bar=None)

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""
        if settings.device != "cpu":
            return f"{self.title}: it is measured in the CPU kernel"
        return None if cpu.is_available() else f"{self.title}: {cpu.missing_reason}"

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Time the stage, the same product by ``torch.matmul``, and one of square matrices."""
        generator = torch.Generator().manual_seed(settings.seed)
        b, h, n, d = self.shape
        query, key, value = (torch.randn(self.shape, generator=generator) for _ in range(3))
        left, right = (torch.randn(self.size, self.size, generator=generator) for _ in range(2))
        problem = AttentionProblem(
            query=query,
            key=key,
            value=value,
            alpha=torch.full((1, 1, 1, 1), 1.5, dtype=torch.float64),
            scale=1 / math.sqrt(d),
        )
        times = best_times(
            {
                "scores": lambda: cpu.attention_only_scores(problem),
                "product": lambda: query @ key.mT,
                "gemm": lambda: left @ right,
            },
            repeats=settings.rounds,
            seconds=settings.seconds,
        )
        flops = 2 * b * h * n * n * d
        scores, gemm = flops / times["scores"], 2 * self.size**3 / times["gemm"]
        yield {
            "direction": FORWARD,
            "ms": 1000 * times["scores"],
            "gflops": scores / 1e9,
            "product_gflops": flops / times["product"] / 1e9,
            "gemm_gflops": gemm / 1e9,
            "share": scores / gemm,
            "bar": self.bar,
        }
