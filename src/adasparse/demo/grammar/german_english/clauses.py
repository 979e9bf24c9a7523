"""Clauses of the German-English grammar: who does what to whom, as far as it makes sense."""

from dataclasses import dataclass, replace
from functools import cache

from adasparse.demo.grammar.german_english.nouns import CITIES, PRONOUNS
from adasparse.demo.grammar.german_english.phrases import (
    PLACES,
    counted,
    fixed,
    loose,
    others,
    subjects,
    whole,
)
from adasparse.demo.grammar.german_english.settings import Setting, settings
from adasparse.demo.grammar.german_english.verbs import (
    GIVING,
    INTRANSITIVE,
    TRANSITIVE,
    TRAVEL,
)
from adasparse.demo.grammar.meaning import Clause, Nominal, NounPhrase, Pair, Phrase, Verb
from adasparse.demo.grammar.spaces import Build, OneOf, Space, Union, maybe

__all__ = ["actions", "actors", "doings", "places", "with_subject"]

PEOPLE = ("person", "young", "family")
VEHICLES = (("mit dem Zug", "by train"), ("mit dem Bus", "by bus"), ("mit dem Auto", "by car"))


@dataclass(frozen=True)
class _Objects:
    """A space of objects, how common they are, and what can be said of them."""

    weight: float
    space: Space[Nominal]
    can_negate: bool = False
    can_repeat: bool = False

    def settings(self, verb: Verb, mode: str) -> Space[Setting]:
        """Settings of a clause with these objects."""
        return settings(
            mode,
            can_negate=self.can_negate,
            can_repeat=self.can_repeat and not verb.is_state,
            is_sudden=verb.is_sudden,
            takes_modal=verb.takes_modal,
        )


def _objects(verb: Verb, *, has_owner: bool) -> list[_Objects]:
    """Objects that make sense of a verb; a thing that is the only one is not bought every week."""
    things = tuple(kind for kind in verb.kinds if kind not in PEOPLE)
    people = tuple(kind for kind in verb.kinds if kind in PEOPLE)
    result = []
    if people:
        result.append(_Objects(3, fixed(people, has_owner=has_owner), True, True))
        result.append(_Objects(2, others(verb.case, has_owner=has_owner), True, True))
    if things:
        result.append(_Objects(4, fixed(things, has_owner=has_owner), True))
    if verb.de_preposition:
        return result
    several = counted(verb.kinds, is_bulk=verb.is_bulk)
    indefinite = loose(verb.kinds)
    if indefinite is not None:
        result.append(_Objects(4 if things else 1, indefinite, True, True))
    for weight, amount in ((3 if verb.is_bulk else 1, several), (0.5, whole(verb.kinds))):
        if amount is not None:
            result.append(_Objects(weight, amount))
    return [*result, *_pairs(things)]


def _pairs(kinds: tuple[str, ...]) -> list[_Objects]:
    """Two different things: one from each half of the kinds."""
    middle = len(kinds) // 2
    first, second = loose(kinds[:middle]), loose(kinds[middle:])
    if first is None or second is None:
        return []
    return [_Objects(0.7, Build(Pair, first, second))]


def places(is_possible: bool) -> Space[NounPhrase | None]:
    """A place now and then, if there can be one."""
    return maybe(0.3, PLACES) if is_possible else OneOf([None])


@cache
def doings(
    verb: Verb, mode: str, *, has_owner: bool = False, has_place: bool = True
) -> Space[Clause]:
    """Clauses with a transitive verb and everything but the subject."""
    return Union(
        *(
            (
                objects.weight,
                Build(
                    lambda direct, place, setting: setting.of(
                        Clause(verb, direct=direct, place=place)
                    ),
                    objects.space,
                    places(verb.has_place and has_place),
                    objects.settings(verb, mode),
                ),
            )
            for objects in _objects(verb, has_owner=has_owner)
        )
    )


@cache
def _givings(verb: Verb, mode: str, *, has_owner: bool) -> Space[Clause]:
    """Clauses with a verb of giving and everything but the subject."""
    receivers: Space[Nominal] = Union(
        (2, others("dat", has_owner=has_owner)), (2, fixed(PEOPLE, has_owner=has_owner))
    )
    return Union(
        *(
            (
                objects.weight,
                Build(
                    lambda indirect, direct, setting: setting.of(
                        Clause(verb, indirect=indirect, direct=direct)
                    ),
                    receivers,
                    objects.space,
                    objects.settings(verb, mode),
                ),
            )
            for objects in _objects(verb, has_owner=has_owner)
        )
    )


@cache
def _goings(mode: str) -> Space[Clause]:
    """Clauses without an object and without the subject: to sleep, to travel by train."""
    staying = Build(
        lambda verb, place, setting: setting.of(Clause(verb, place=place)),
        OneOf(INTRANSITIVE),
        places(True),
        settings(mode, can_negate=True, can_repeat=True),
    )
    once = [(verb, Phrase(f"nach {de}", f"to {en}")) for verb in TRAVEL for de, en in CITIES]
    ways = [
        (TRAVEL[0], Phrase(f"{how_de} nach {de}", f"to {en} {how_en}"))
        for how_de, how_en in VEHICLES
        for de, en in CITIES
    ]
    traveling = Build(
        lambda way, setting: setting.of(Clause(way[0], complement=way[1])),
        OneOf(once + ways),
        settings(mode, can_negate=True),
    )
    return Union((1, staying), (1, traveling))


@cache
def actors(cast: str, mode: str, *, has_owner: bool) -> Space[Nominal]:
    """Who acts in a clause; nobody asks what they did themselves."""
    if not has_owner and mode in ("question", "asked"):
        return OneOf(PRONOUNS[1:2])
    return subjects(cast, has_owner=has_owner)


@cache
def actions(cast: str, mode: str) -> Space[Clause]:
    """Clauses in which somebody of the cast, or a person, or I or we do something."""
    spaces: list[tuple[float, Space[Clause]]] = []
    for has_owner, share in ((True, 4), (False, 1)):
        verbs = [
            verb
            for verb in TRANSITIVE
            if mode != "consequence" or (verb.takes_modal and not verb.is_sudden)
        ]
        doing = Union(*((1, doings(verb, mode, has_owner=has_owner)) for verb in verbs))
        giving = Union(*((1, _givings(verb, mode, has_owner=has_owner)) for verb in GIVING))
        predicates = Union((7, doing), (1.5, giving), (1.5, _goings(mode)))
        who = actors(cast, mode, has_owner=has_owner)
        spaces.append((share, Build(with_subject, who, predicates)))
    return Union(*spaces)


def with_subject(subject: Nominal, clause: Clause) -> Clause:
    """The clause with its subject filled in."""
    return replace(clause, subject=subject)
