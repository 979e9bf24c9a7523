"""Noun phrases, subjects and times of the German-English grammar, as spaces to choose from."""

from collections.abc import Sequence
from functools import cache

from adasparse.demo.grammar.german_english.nouns import (
    ADJECTIVES,
    CASTS,
    COLORED,
    COLORS,
    NOUNS,
    PRONOUNS,
    QUALITIES,
)
from adasparse.demo.grammar.meaning import (
    DAYS,
    Adjective,
    Clock,
    Date,
    Nominal,
    Noun,
    NounPhrase,
    Pair,
    Phrase,
    Time,
)
from adasparse.demo.grammar.numbers import countable, words
from adasparse.demo.grammar.spaces import Build, OneOf, Space, Union

__all__ = [
    "BIRTH_DATES",
    "CLOCKS",
    "DATES",
    "FEW",
    "FUTURE_TIMES",
    "MANY",
    "NOW",
    "PAST_TIMES",
    "PLACES",
    "WEEKDAYS",
    "counted",
    "fixed",
    "loose",
    "named",
    "others",
    "phrases",
    "subjects",
    "whole",
]

FEW = OneOf(range(2, 21))
#: What shops and libraries count; small numbers are the common ones.
MANY: Space[int] = Union(
    (4, FEW),
    (5, OneOf(countable(21, 99))),
    (2, OneOf(countable(100, 999))),
    (1, OneOf(countable(1000, 9999))),
)


#: No possessives: a man of one's own would be a husband.
UNOWNED = ("person", "young", "produce", "baked", "transport", "event", "place")


def phrases(
    kinds: Sequence[str],
    determiners: Sequence[str],
    *,
    is_plural: bool = False,
    has_adjectives: bool = True,
) -> Space[NounPhrase]:
    """Noun phrases about these kinds of noun, all of one number."""
    return Union(
        *(
            (
                1,
                Build(
                    NounPhrase,
                    OneOf([noun]),
                    OneOf(determiners),
                    OneOf([is_plural]),
                    OneOf([0]),
                    _adjectives(noun) if has_adjectives else OneOf([()]),
                ),
            )
            for noun in _nouns(kinds)
            if not (is_plural and noun.is_mass)
        )
    )


def _nouns(kinds: Sequence[str]) -> list[Noun]:
    return [noun for kind in kinds for noun in NOUNS[kind]]


def _adjectives(noun: Noun) -> Space[tuple[Adjective, ...]]:
    """No adjective, a quality, a color, or a quality and a color."""
    qualities = [ADJECTIVES[name] for name in QUALITIES[noun.kind]]
    none: Space[tuple[Adjective, ...]] = OneOf([()])
    quality: Space[tuple[Adjective, ...]] = OneOf([(first,) for first in qualities])
    if noun.kind not in COLORED:
        return Union((5, none), (4, quality))
    colors = [ADJECTIVES[name] for name in COLORS]
    color: Space[tuple[Adjective, ...]] = OneOf([(second,) for second in colors])
    both: Space[tuple[Adjective, ...]] = OneOf([(a, b) for a in qualities for b in colors])
    return Union((5, none), (3, quality), (2, color), (1, both))


@cache
def fixed(kinds: tuple[str, ...], *, has_owner: bool = False) -> Space[NounPhrase]:
    """The, this, my, our or (with ``has_owner``) the subject's own: German denies it by *nicht*.

    Relatives take possessives alone.
    """
    mine = ["my", "our", *(["own"] if has_owner else [])]
    spaces: list[tuple[float, Space[NounPhrase]]] = []
    for kind in kinds:
        weight = len(NOUNS[kind])
        if kind == "family":
            spaces.append((weight, phrases([kind], mine, has_adjectives=False)))
        elif kind in ("drink", "staple", "dish"):
            spaces.append((weight / 2, phrases([kind], ["the"])))
        else:
            is_owned = kind not in UNOWNED
            determiners = ["the", "this", *(mine if is_owned else [])]
            spaces.append((weight * 0.75, phrases([kind], determiners)))
            spaces.append((weight * 0.25, phrases([kind], determiners, is_plural=True)))
    return Union(*spaces)


@cache
def loose(kinds: tuple[str, ...]) -> Space[NounPhrase] | None:
    """A thing, things, or some of what cannot be counted: German denies it by *kein*."""
    spaces: list[tuple[float, Space[NounPhrase]]] = []
    for kind in kinds:
        weight = len(NOUNS[kind])
        if kind in ("drink", "staple", "dish"):
            spaces.append((weight, phrases([kind], [""])))
        elif kind != "family":
            spaces.append((weight * 0.7, phrases([kind], ["a"])))
            if kind not in ("person", "young", "opening"):
                spaces.append((weight * 0.3, phrases([kind], [""], is_plural=True)))
    return Union(*spaces) if spaces else None


@cache
def counted(kinds: tuple[str, ...], is_bulk: bool = False) -> Space[NounPhrase] | None:
    """A number of things, in the thousands if ``is_bulk``, or many or several of them."""
    counts = MANY if is_bulk else FEW
    kinds = _countable(kinds)
    if not kinds:
        return None
    numbers = Union(
        *(
            (
                1,
                Build(
                    NounPhrase, OneOf([noun]), OneOf([""]), OneOf([True]), counts, _adjectives(noun)
                ),
            )
            for noun in _nouns(kinds)
        )
    )
    return Union((4, numbers), (1, phrases(kinds, ["many", "several"], is_plural=True)))


@cache
def whole(kinds: tuple[str, ...]) -> Space[NounPhrase] | None:
    """All or every one of the things that can be counted."""
    kinds = _countable(kinds)
    if not kinds:
        return None
    return Union((1, phrases(kinds, ["all"], is_plural=True)), (1, phrases(kinds, ["every"])))


def _countable(kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if not NOUNS[kind][0].is_mass and kind != "family")


@cache
def named(cast: str) -> Space[Nominal]:
    """Names of a cast."""
    return OneOf(CASTS[cast])


@cache
def subjects(cast: str, *, has_owner: bool) -> Space[Nominal]:
    """Who acts: with ``has_owner`` a third person who can own things, else I or we.

    Children act in the plural alone: what is a single child's own is *sein* in German for a girl
    too, and anything in English.
    """
    if not has_owner:
        return OneOf(PRONOUNS[:2])
    women = [name for name in CASTS[cast] if name.gender == "f"]
    men = [name for name in CASTS[cast] if name.gender == "m"]
    singular = phrases(["person"], ["the", "this", "a"])
    plural = phrases(["person", "young"], ["the", "this", "all", "many"], is_plural=True)
    return Union(
        (8, OneOf(CASTS[cast])),
        (3, OneOf(PRONOUNS[2:])),
        (3, singular),
        (1.5, plural),
        (1.5, fixed(("family",))),
        (1.5, Build(Pair, OneOf(women), OneOf(men))),
    )


@cache
def others(case: str, *, has_owner: bool) -> Space[Nominal]:
    """Whom it is done to, as a name or pronoun that cannot be the subject itself."""
    me, us, him, her = PRONOUNS
    # The accusative *sie* would be her or them.
    third = [him] if case == "acc" else [him, her]
    return Union(
        (2, OneOf(CASTS["object"])),
        (1, OneOf([me, us, *third] if has_owner else third)),
    )


#: Exact minutes begin at eleven: English reads those below ten with an *oh*. They stand where no
#: number can follow: *um drei Uhr dreizehn Bücher* could be thirteen books.
SPOKEN_MINUTES = (0, 5, 10, 15, 20, 30, 40, 45, 50, 55)
EXACT = [
    Clock(hour, minute)
    for hour in range(1, 13)
    for minute in range(11, 60)
    if minute not in SPOKEN_MINUTES
]
ROUND = [Clock(hour, minute) for hour in range(1, 13) for minute in SPOKEN_MINUTES]
CLOCKS = Union((5, OneOf(ROUND)), (1, OneOf(EXACT)))
DATES = OneOf([Date(day, month) for day, month in DAYS])
#: The years from 2000 on would run into a number that follows.
PAST_DATES = OneOf([Date(day, month, year) for year in range(1950, 2000) for day, month in DAYS])
BIRTH_DATES = OneOf([Date(day, month, year) for year in range(1950, 2025) for day, month in DAYS])

WEEKDAYS = [
    Phrase(f"am {de}", f"on {en}")
    for de, en in zip(
        ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"],
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
        strict=True,
    )
]
YESTERDAY, TODAY, TOMORROW = (
    Phrase("gestern", "yesterday"),
    Phrase("heute", "today"),
    Phrase("morgen", "tomorrow"),
)
PAST_DAYS = [
    YESTERDAY,
    Phrase("vorgestern", "the day before yesterday"),
    Phrase("letzte Woche", "last week"),
    Phrase("letztes Jahr", "last year"),
]
FUTURE_DAYS = [
    TOMORROW,
    Phrase("übermorgen", "the day after tomorrow"),
    Phrase("nächste Woche", "next week"),
    Phrase("nächstes Jahr", "next year"),
]
UNITS = [("Tagen", "days"), ("Wochen", "weeks"), ("Monaten", "months"), ("Jahren", "years")]
SPANS = [(count, *unit) for unit in UNITS for count in range(2, 21)]
AGO = [
    Phrase(f"vor {words(count, 'de')} {de}", f"{words(count, 'en')} {en} ago")
    for count, de, en in SPANS
]
AHEAD = [
    Phrase(f"in {words(count, 'de')} {de}", f"in {words(count, 'en')} {en}")
    for count, de, en in SPANS
]


def _days(*weighted: tuple[float, Space[Phrase] | Space[Date]]) -> Space[Time]:
    return Build(Time, Union(*weighted))


def _with_clock(days: Sequence[Phrase]) -> Space[Time]:
    return Build(Time, OneOf([None, *days]), OneOf(ROUND))


PAST_TIMES = Union(
    (
        6,
        _days(
            (3, OneOf(PAST_DAYS)),
            (1, OneOf(WEEKDAYS)),
            (2, OneOf(AGO)),
            (1, DATES),
            (2, PAST_DATES),
        ),
    ),
    (2, _with_clock([YESTERDAY, *WEEKDAYS])),
)
FUTURE_TIMES = Union(
    (5, _days((3, OneOf(FUTURE_DAYS)), (1, OneOf(WEEKDAYS)), (2, OneOf(AHEAD)), (1, DATES))),
    (2, _with_clock([TOMORROW, *WEEKDAYS])),
)
NOW = Build(Time, OneOf([TODAY, Phrase("jetzt", "now")]))
PLACES = phrases(["place"], ["the"], has_adjectives=False)
