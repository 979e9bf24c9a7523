"""Cases of the operator benchmark: an operator of adasparse and its baseline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import adasparse
from adasparse.bench import calls
from adasparse.bench.calls import BOTH, FORWARD, Call, both, forward

SHAPES = ((4096, 1024), (512, 32000), (8192, 64))
ALPHAS = (1.0, 1.05, 1.25, 1.5, 1.75, 2.0)
LOSS_SHAPE = (512, 32000)
LOSS_ALPHAS = (1.0, 1.5, 2.0)
PACKAGE_SHAPE = (4096, 1024)
#: Where a learned alpha stands while it is timed: at no value that has a formula of its own.
LEARNED_ALPHA = 1.4


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A baseline and an operator of adasparse at several alphas, timed side by side."""

    operator: str
    baseline: str
    shape: tuple[int, int]
    direction: str
    known: Call
    ours: dict[float | str, Call]


def operators(*, is_quick: bool, seed: int) -> Iterator[Comparison]:
    """Yield the comparisons of ``adasparse bench ops``, each with data of its own."""
    generator = torch.Generator().manual_seed(seed)
    for shape in SHAPES:
        yield from _against_softmax(_sized(shape, is_quick), generator)
    if calls.has_entmax_package():
        yield from _against_package(_sized(PACKAGE_SHAPE, is_quick), generator)
    yield _against_cross_entropy(_sized(LOSS_SHAPE, is_quick), generator)


def _sized(shape: tuple[int, int], is_quick: bool) -> tuple[int, int]:
    return (max(1, shape[0] // 8), shape[1]) if is_quick else shape


def _against_softmax(shape: tuple[int, int], generator: torch.Generator) -> Iterator[Comparison]:
    scores, grad = (torch.randn(shape, generator=generator) for _ in range(2))

    def softmax(scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1)

    def at(alpha: float | Tensor) -> Callable[[Tensor], Tensor]:
        return lambda scores: adasparse.entmax(scores, alpha)

    named: dict[str, Any] = {
        "operator": "entmax",
        "baseline": "torch.softmax",
        "shape": shape,
    }
    yield Comparison(
        **named,
        direction=FORWARD,
        known=forward(softmax, scores),
        ours={alpha: forward(at(alpha), scores) for alpha in ALPHAS},
    )
    learned = torch.tensor(LEARNED_ALPHA, requires_grad=True)
    with_gradients: dict[float | str, Call] = {
        alpha: both(at(alpha), scores, grad=grad) for alpha in ALPHAS
    }
    with_gradients["learned"] = both(at(learned), scores, grad=grad, learned=(learned,))
    yield Comparison(
        **named, direction=BOTH, known=both(softmax, scores, grad=grad), ours=with_gradients
    )


def _against_package(shape: tuple[int, int], generator: torch.Generator) -> Iterator[Comparison]:
    entmax15 = calls.package_entmax15()
    scores, grad = (torch.randn(shape, generator=generator) for _ in range(2))
    for direction in (FORWARD, BOTH):
        known, ours = (
            forward(function, scores) if direction == FORWARD else both(function, scores, grad=grad)
            for function in (entmax15, adasparse.entmax)
        )
        yield Comparison(
            operator="entmax",
            baseline="entmax.entmax15",
            shape=shape,
            direction=direction,
            known=known,
            ours={1.5: ours},
        )


def _against_cross_entropy(shape: tuple[int, int], generator: torch.Generator) -> Comparison:
    scores = torch.randn(shape, generator=generator)
    target = torch.randint(shape[1], shape[:1], generator=generator)
    grad = torch.ones(())

    def at(alpha: float | Tensor) -> Callable[[Tensor], Tensor]:
        return lambda scores: adasparse.entmax_loss(scores, target, alpha)

    learned = torch.tensor(LEARNED_ALPHA, requires_grad=True)
    ours: dict[float | str, Call] = {
        alpha: both(at(alpha), scores, grad=grad) for alpha in LOSS_ALPHAS
    }
    ours["learned"] = both(at(learned), scores, grad=grad, learned=(learned,))
    return Comparison(
        operator="entmax_loss",
        baseline="cross_entropy",
        shape=shape,
        direction=BOTH,
        known=both(lambda scores: functional.cross_entropy(scores, target), scores, grad=grad),
        ours=ours,
    )
