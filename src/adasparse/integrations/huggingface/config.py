"""Settings of ``sparsify``: the modules to make sparse, and their exponents."""

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from adasparse.nn.length_scale import LengthScaleKind

AlphaMode = Literal["learned", "fixed", "annealed"]
AttentionType = Literal["encoder", "decoder", "context"]

#: What a pattern of module names begins with to be a regular expression.
REGEX = "re:"


@dataclass(frozen=True, kw_only=True)
class SparsityConfig:
    """Settings that make a model sparse; everything is checked on construction.

    Args:
        alpha: ``"learned"``, one exponent per head; ``"fixed"`` at ``init_alpha``; or
            ``"annealed"`` from ``init_alpha`` to ``final_alpha``, the way to move over a model
            that was trained with softmax.
        init_alpha: Where alpha starts; 1.5, or 1 where it is annealed, if None.
        final_alpha: Where an annealed alpha ends.
        anneal_steps: How many steps of training it takes to get there, at an even pace.
        low: Lower end of the range of a learned alpha, at least 1.
        high: Upper end.
        tie_heads: Whether the heads of a module share one learned alpha.
        modules: Which attention modules, by name: shell patterns, or regular expressions that
            begin with ``re:`` and match the whole name.
        heads: Which heads of each module; the others stay softmax. All if None.
        attention: Which kinds: ``"encoder"`` sees the whole sequence, ``"decoder"`` what came
            before, ``"context"`` another sequence.
        length_scale: Kind of ``adasparse.nn.LengthScale`` to multiply queries with, or None.

    Example:
        >>> SparsityConfig(alpha="fixed", init_alpha=2.0, modules="encoder.*").modules
        ('encoder.*',)
        >>> SparsityConfig(alpha="fixed", init_alpha=0.5, heads=())
        Traceback (most recent call last):
        ...
        ValueError: init_alpha must be at least 1 and finite; got 0.5. heads must name at least
        one head, or be None for all; got ().
    """

    alpha: AlphaMode = "learned"
    init_alpha: float | None = None
    final_alpha: float = 1.5
    anneal_steps: int = 1000
    low: float = 1.0
    high: float = 2.0
    tie_heads: bool = False
    modules: str | tuple[str, ...] = "*"
    heads: tuple[int, ...] | None = None
    attention: tuple[AttentionType, ...] = ("encoder", "decoder", "context")
    length_scale: LengthScaleKind | None = None

    def __post_init__(self) -> None:
        for name in ("modules", "attention"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if self.heads is not None:
            object.__setattr__(self, "heads", _numbers("heads", self.heads))
        for name in ("init_alpha", "final_alpha", "low", "high"):
            value = getattr(self, name)
            is_open = value is None and name == "init_alpha"
            if not is_open and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"{name} must be a number; got {value!r}.")
        if not isinstance(self.tie_heads, bool):
            raise TypeError(f"tie_heads must be True or False; got {self.tie_heads!r}.")
        if self.init_alpha is None:
            object.__setattr__(self, "init_alpha", 1.0 if self.alpha == "annealed" else 1.5)
        mistakes = [*self._alpha_mistakes(), *self._choice_mistakes()]
        if mistakes:
            raise ValueError(" ".join(mistakes))

    def _alpha_mistakes(self) -> list[str]:
        found = []
        if self.alpha not in get_args(AlphaMode):
            found.append(f"alpha must be one of {get_args(AlphaMode)}; got {self.alpha!r}.")
        for name, value in (("init_alpha", self.init_alpha), ("final_alpha", self.final_alpha)):
            if not isinstance(value, (int, float)) or not 1 <= value < math.inf:
                found.append(f"{name} must be at least 1 and finite; got {value!r}.")
        if not 1 <= self.low < self.high < math.inf:
            found.append(
                f"low and high must satisfy 1 <= low < high; got {self.low} and {self.high}."
            )
        elif (
            self.alpha == "learned"
            and self.init_alpha is not None
            and not self.low < self.init_alpha < self.high
        ):
            found.append(
                f"init_alpha must lie strictly between low={self.low} and high={self.high} to be "
                f"learned; got {self.init_alpha}."
            )
        if not isinstance(self.anneal_steps, int) or self.anneal_steps < 1:
            found.append(f"anneal_steps must be an integer of at least 1; got {self.anneal_steps}.")
        return found

    def _choice_mistakes(self) -> list[str]:
        found = []
        for pattern in self.modules:
            try:
                re.compile(pattern.removeprefix(REGEX) if pattern.startswith(REGEX) else "")
            except re.error as error:
                found.append(f"modules has the regular expression {pattern!r}: {error}.")
        if not self.modules:
            found.append("modules must have at least one pattern; got ().")
        if self.heads is not None and not self.heads:
            found.append("heads must name at least one head, or be None for all; got ().")
        elif self.heads is not None and (
            min(self.heads) < 0 or len(set(self.heads)) < len(self.heads)
        ):
            found.append(f"heads must be different numbers from 0 on; got {self.heads}.")
        unknown = [x for x in self.attention if x not in get_args(AttentionType)]
        if unknown or not self.attention:
            found.append(
                f"attention must be some of {get_args(AttentionType)}; got {self.attention}."
            )
        if self.length_scale is not None and self.length_scale not in get_args(LengthScaleKind):
            found.append(
                f"length_scale must be None or one of {get_args(LengthScaleKind)}; "
                f"got {self.length_scale!r}."
            )
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SparsityConfig":
        """Build a configuration of what ``to_dict`` gave."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"The keys of a SparsityConfig are {sorted(known)}; got {unknown}.")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, lists instead of tuples, as they stand in a JSON file."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    def matches(self, name: str) -> bool:
        """Tell whether a module of this name is meant."""
        return any(
            re.fullmatch(pattern.removeprefix(REGEX), name) is not None
            if pattern.startswith(REGEX)
            else fnmatch.fnmatchcase(name, pattern)
            for pattern in self.modules
        )


def _names(name: str, value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(x, str) for x in found):
        raise TypeError(f"{name} must be a string or several; got {value!r}.")
    return found


def _numbers(name: str, value: Any) -> tuple[int, ...]:
    found = tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(x, Integral) and not isinstance(x, bool) for x in found):
        raise TypeError(f"{name} must be a tuple of integers, or None for all; got {value!r}.")
    return tuple(int(x) for x in found)
