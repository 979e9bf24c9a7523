"""What things cost, where they are and how, ages and dates, in Romanian and English."""

from adasparse.translation.grammar import english
from adasparse.translation.grammar.meaning import (
    DAYS,
    Clause,
    Clock,
    Date,
    Phrase,
    english_verb,
)
from adasparse.translation.grammar.numbers import countable, romanian_count, words
from adasparse.translation.grammar.romanian_english.actions import (
    Both,
    Said,
    adjectives,
    fixed,
    noun_phrase,
)
from adasparse.translation.grammar.romanian_english.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PLACES,
    QUALITIES,
    TELLERS,
    Adjective,
    Noun,
)
from adasparse.translation.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["all_facts", "clock", "date"]

MONTHS = [
    "ianuarie",
    "februarie",
    "martie",
    "aprilie",
    "mai",
    "iunie",
    "iulie",
    "august",
    "septembrie",
    "octombrie",
    "noiembrie",
    "decembrie",
]
#: Prices in lei by kind.
PRICED = {
    "vehicle": countable(1000, 9999),
    "furniture": countable(20, 999),
    "clothing": countable(20, 999),
    "text": countable(2, 99),
    "carried": countable(20, 999),
}
BE = english_verb("be was been being")
COST = english_verb("cost cost cost costing", is_state=True)


def clock(at: Clock) -> str:
    """*ora trei și jumătate*, *ora patru fără un sfert*; hours are feminine, but for *unu*."""
    is_past = at.minute <= 30
    hour = at.hour if is_past else at.hour % 12 + 1
    name = "ora " + ("unu" if hour == 1 else romanian_count(hour, feminine=True))
    if at.minute == 0:
        return name
    minutes = at.minute if is_past else 60 - at.minute
    spoken = {15: "un sfert", 30: "jumătate"}.get(minutes, words(minutes, "ro"))
    return f"{name} {'și' if is_past else 'fără'} {spoken}"


def date(day: Date) -> str:
    """*întâi mai*, *trei mai o mie nouă sute nouăzeci*."""
    text = f"{'întâi' if day.day == 1 else words(day.day, 'ro')} {MONTHS[day.month]}"
    return f"{text} {words(day.year, 'ro')}" if day.year else text


def _costs(thing: Said, lei: int) -> Both:
    price = Phrase("", f"{words(lei, 'en')} lei")
    return (
        f"{thing.ro} costă {romanian_count(lei, feminine=False)} lei",
        english.statement(Clause(COST, thing.en, complement=price)),
    )


def _there(place: Both, noun: Noun, number: int, adjective: Adjective | None) -> Both:
    thing = noun_phrase(noun, "a" if number == 1 else "count", number, adjective)
    are = ("este", "there is") if number == 1 else ("sunt", "there are")
    return f"{place[0]} {are[0]} {thing.ro}", f"{are[1]} {thing.en.en[0]} {place[1]}"


def _is(noun: Noun, number: int, determiner: str, name: str, is_negated: bool) -> Both:
    thing = noun_phrase(noun, determiner, number, None)
    form = ADJECTIVES[name].form(noun.gender, is_plural=number != 1)
    verb = ("nu " if is_negated else "") + ("este" if number == 1 else "sunt")
    clause = Clause(BE, thing.en, complement=Phrase("", name), is_negated=is_negated)
    return f"{thing.ro} {verb} {form}", english.statement(clause)


def _qualities() -> Space[Both]:
    numbers, negated = OneOf([1, 0]), Union((3, OneOf([False])), (1, OneOf([True])))
    rows: list[tuple[Noun, list[str], list[str]]] = [
        (noun, names, ["the", "my"]) for kind, names in QUALITIES.items() for noun in NOUNS[kind]
    ]
    rows += [(noun, ["tired", "happy", "sick"], ["the"]) for noun in NOUNS["person"]]
    return Union(
        *(
            (1, Build(_is, OneOf([noun]), numbers, OneOf(determiners), OneOf(names), negated))
            for noun, names, determiners in rows
        )
    )


def all_facts() -> Space[Both]:
    """Prices, ages, what there is, births and times of day."""
    names = OneOf([*TELLERS, *(name for name in NAMES if not name.is_plural)])
    prices = Union(
        *(
            (1, Build(_costs, fixed(noun, numbers=(1,)), OneOf(PRICED[kind])))
            for kind in PRICED
            for noun in NOUNS[kind]
        )
    )
    rooms = Union(
        *(
            (1, Build(_there, OneOf(PLACES), OneOf([noun]), OneOf(range(1, 21)), adjectives(noun)))
            for kind in ("furniture", "animal", "carried")
            for noun in NOUNS[kind]
        )
    )
    ages = Build(
        lambda who, years: (
            f"{who.ro} are {romanian_count(years, feminine=False)} ani",
            f"{who.en[0]} is {words(years, 'en')} years old",
        ),
        names,
        OneOf(range(2, 100)),
    )
    births = Build(
        lambda who, day, year: (
            f"{who.ro} s-a născut pe {date(Date(day[0], day[1], year))}",
            f"{who.en[0]} was born on {english.date(Date(day[0], day[1], year))}",
        ),
        names,
        OneOf(DAYS),
        OneOf(range(1950, 2025)),
    )
    clocks = Build(
        lambda hour, minute: (
            f"este {clock(Clock(hour, minute))}",
            f"it is {english.clock(Clock(hour, minute))}",
        ),
        OneOf(range(1, 13)),
        OneOf([0, 5, 10, 15, 20, 30, 40, 45, 50, 55]),
    )
    return Union(
        (4, prices),
        (3, rooms),
        (3, _qualities()),
        (1, ages),
        (2, births),
        (0.3, clocks),
    )
