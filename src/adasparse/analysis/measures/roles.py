"""Roles of heads, in words, with the numbers behind them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adasparse.analysis.measures.results import Measures

#: Sentences in which a measure must be defined for a role to rest on it.
_ENOUGH = 5


@dataclass(frozen=True, kw_only=True)
class Role:
    """The role of a head, and the evidence for it."""

    role: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class HeadRole:
    """A role and which head has it, layers and heads counted from 0.

    ``strength`` is the value that the role rests on, as a share of what would be perfect.
    """

    kind: str
    layer: int
    head: int
    role: Role
    strength: float


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """A head whose ``measure`` is at least ``least`` has the role."""

    role: str
    measure: str
    least: float
    evidence: str
    is_role: Callable[["_Head"], bool] = lambda head: True


class _Head:
    """The measures of one head."""

    def __init__(self, measures: Measures, kind: str, layer: int, head: int) -> None:
        self._at = (layer, head)
        self._kind = kind
        self._measures = measures

    def __getitem__(self, key: str) -> float:
        return float(self._measures.values(self._kind, key)[self._at])


#: In the order in which roles are told; weights are shares of all weight.
RULES = (
    _Rule(
        role="looks at the previous token",
        measure="previous",
        least=0.5,
        evidence="{:.1%} of its weight",
    ),
    _Rule(
        role="looks at the next token", measure="next", least=0.5, evidence="{:.1%} of its weight"
    ),
    _Rule(
        role="looks two tokens back",
        measure="previous2",
        least=0.5,
        evidence="{:.1%} of its weight",
    ),
    _Rule(
        role="looks two tokens ahead", measure="next2", least=0.5, evidence="{:.1%} of its weight"
    ),
    _Rule(
        role="merges the pieces of words",
        measure="split_merging",
        least=0.5,
        evidence="a piece gives up to {:.1%} of its weight to the rest of its word",
        # A head that looks at a neighbor always finds one inside a word.
        is_role=lambda head: (
            head["merging"] >= 0.5 and not max(head["previous"], _or_zero(head["next"])) >= 0.5
        ),
    ),
    _Rule(
        role="looks at the token itself",
        measure="self",
        least=0.5,
        evidence="{:.1%} of its weight",
    ),
    _Rule(
        role="finds the question mark",
        measure="interrogation",
        least=0.5,
        evidence="{:.1%} of its weight at interrogative words",
        is_role=lambda head: head["interrogation"] >= 2 * _or_zero(head["punctuation"]),
    ),
    _Rule(
        role="looks at the end of the sentence",
        measure="end",
        least=0.5,
        evidence="{:.1%} of its weight",
    ),
    _Rule(
        role="looks at separators",
        measure="special",
        least=0.5,
        evidence="{:.1%} of its weight",
        is_role=lambda head: not _or_zero(head["end"]) >= 0.5,
    ),
    _Rule(
        role="looks at punctuation",
        measure="punctuation",
        least=0.5,
        evidence="{:.1%} of its weight",
    ),
    _Rule(
        role="looks at rare words",
        measure="rarity",
        least=3.0,
        evidence="{:.1f} times their share of the tokens",
    ),
    _Rule(
        role="looks at everything alike",
        measure="entropy",
        least=0.9,
        evidence="{:.1%} of the largest entropy",
    ),
)
#: Reference that the strength of a role is compared with.
_PERFECT = {"rarity": 10.0}


def _or_zero(value: float) -> float:
    return 0.0 if np.isnan(value) else value


def head_roles(measures: Measures) -> list[HeadRole]:
    """Return every role of every head, layer by layer."""
    found = []
    for kind in measures.header.kinds:
        for layer, heads in enumerate(measures.header.alpha[kind]):
            for number in range(len(heads)):
                head = _Head(measures, kind, layer, number)
                for rule in RULES:
                    value = head[rule.measure]
                    is_enough = measures.counted(kind, rule.measure) >= min(
                        _ENOUGH, measures.num_sentences
                    )
                    if is_enough and value >= rule.least and rule.is_role(head):
                        role = Role(role=rule.role, evidence=rule.evidence.format(value))
                        found.append(
                            HeadRole(
                                kind=kind,
                                layer=layer,
                                head=number,
                                role=role,
                                strength=min(value / _PERFECT.get(rule.measure, 1.0), 1.0),
                            )
                        )
    return found


def head_name(kind: str, layer: int, head: int) -> str:
    """Return what a head is called in texts, where layers and heads are counted from 1."""
    return f"{kind} layer {layer + 1}, head {head + 1}"


def summarize(measures: Measures, *, per_role: int = 3) -> list[str]:
    """Return sentences in plain words, with numbers, about a run.

    Args:
        measures: Measures of the run.
        per_role: Number of heads to name for each role and kind of attention, the clearest.
    """
    header = measures.header
    sentences = [_overall(measures, kind) for kind in header.kinds]
    roles = head_roles(measures)
    for kind in header.kinds:
        for rule in RULES:
            having = [x for x in roles if x.kind == kind and x.role.role == rule.role]
            having.sort(key=lambda x: -x.strength)
            for x in having[:per_role]:
                alpha = header.alpha[kind][x.layer][x.head]
                sentences.append(
                    f"{head_name(kind, x.layer, x.head)} {x.role.role}, {x.role.evidence}, "
                    f"α = {alpha:.2f}."
                )
            if len(having) > per_role:
                more = len(having) - per_role
                sentences.append(
                    f"{more} more {kind} {'head does' if more == 1 else 'heads do'} so: "
                    f"{_names(having[per_role:])}."
                )
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _names(roles: list[HeadRole]) -> str:
    return ", ".join(f"{x.layer + 1}.{x.head + 1}" for x in roles)


_KIND_NAMES = {
    "encoder": "the encoder",
    "decoder": "the decoder",
    "context": "the attention of the decoder to the encoder",
}


def _overall(measures: Measures, kind: str) -> str:
    alpha, density = measures.values(kind, "alpha"), measures.values(kind, "density")
    layers, heads = measures.header.size(kind)
    used = np.nanmean(density) if np.isfinite(density).any() else np.nan
    lowest, highest = np.nanmin(alpha), np.nanmax(alpha)
    between = f"α is {lowest:.2f}"
    if highest - lowest >= 0.005:
        between = (
            f"α lies between {lowest:.2f} and {highest:.2f}, {np.nanmean(alpha):.2f} on average"
        )
    sparsest = np.unravel_index(np.nanargmin(density), density.shape) if used < 1 else None
    sentence = (
        f"in {_KIND_NAMES[kind]}, {layers} layers of {heads} heads, {between}; "
        f"a query gives weight to {used:.1%} of the tokens that it sees"
    )
    if sparsest is not None:
        layer, head = (int(x) for x in sparsest)
        sentence += f", in the sparsest head ({layer + 1}.{head + 1}) to {density[layer, head]:.1%}"
    return sentence + "."
