"""Spaces of meanings: what a grammar can say, counted exactly, sampled, or listed.

A grammar is put together from three combinators. ``OneOf`` holds the items themselves, ``Build``
applies a function to one choice from each of several spaces, ``Union`` takes one of several spaces.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, product
from math import prod
from random import Random
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Build", "OneOf", "Space", "Union", "maybe", "pick"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def pick(rng: Random, size: int) -> int:
    """A number below ``size``, from ``Random.random`` alone: the same in every Python version."""
    return int(rng.random() * size)


class Space(Protocol[T_co]):
    """A finite space of choices."""

    @property
    def size(self) -> int:
        """Number of choices."""

    def sample(self, rng: Random) -> T_co:
        """One choice at random."""

    def __iter__(self) -> Iterator[T_co]: ...


class OneOf(Generic[T]):
    """One of the given items, all equally likely."""

    def __init__(self, items: Sequence[T]) -> None:
        if not items:
            raise ValueError("a space needs at least one item; got none.")
        self.items = tuple(items)

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items)

    def sample(self, rng: Random) -> T:
        """An item at random."""
        return self.items[pick(rng, len(self.items))]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class Build(Generic[T]):
    """Results of ``build`` for one choice from each of ``parts``."""

    def __init__(self, build: Callable[..., T], *parts: Space[Any]) -> None:
        self.build, self.parts = build, parts
        self.size = prod(part.size for part in parts)

    def sample(self, rng: Random) -> T:
        """Return the result for random parts."""
        return self.build(*[part.sample(rng) for part in self.parts])

    def __iter__(self) -> Iterator[T]:
        return (self.build(*choice) for choice in product(*self.parts))


class Union(Generic[T]):
    """A choice from one of several spaces, each given with its weight in sampling."""

    def __init__(self, *weighted: tuple[float, Space[T]]) -> None:
        if not weighted:
            raise ValueError("a union needs at least one space; got none.")
        self.spaces = [space for _, space in weighted]
        total = sum(weight for weight, _ in weighted)
        self.bounds = [bound / total for bound in accumulate(weight for weight, _ in weighted)]
        self.size = sum(space.size for space in self.spaces)

    def sample(self, rng: Random) -> T:
        """A random choice from a random space."""
        index = min(bisect_right(self.bounds, rng.random()), len(self.spaces) - 1)
        return self.spaces[index].sample(rng)

    def __iter__(self) -> Iterator[T]:
        return (choice for space in self.spaces for choice in space)


def maybe(chance: float, space: Space[T]) -> "Union[T | None]":
    """A choice from ``space`` with this chance, otherwise None."""
    nothing: Space[T | None] = OneOf([None])
    return Union((1 - chance, nothing), (chance, space))
