"""What things cost, where they are and how, ages and dates, in Japanese and English."""

from adasparse.translation.grammar import english
from adasparse.translation.grammar.japanese_english.actions import (
    DETERMINERS,
    FEW,
    Both,
    Thing,
    adjectives,
    counted,
    fixed,
)
from adasparse.translation.grammar.japanese_english.words import (
    ADJECTIVES,
    NOUNS,
    PEOPLE,
    PLACES,
    QUALITIES,
    TELLERS,
    VERBS,
    Adjective,
    JapaneseVerb,
    Noun,
    Person,
)
from adasparse.translation.grammar.meaning import (
    DAYS,
    Clause,
    Clock,
    Date,
    Phrase,
    Tense,
    english_verb,
)
from adasparse.translation.grammar.numbers import words
from adasparse.translation.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["COST", "PRICED", "all_facts", "clock", "date", "prices"]

#: Prices in yen by kind.
CHEAP: Space[int] = Union((1, OneOf(range(100, 1000, 10))), (2, OneOf(range(1000, 10000, 50))))
DEAR: Space[int] = OneOf(range(20000, 500000, 1000))
PRICED = {
    "book": CHEAP,
    "cloth": CHEAP,
    "ticket": CHEAP,
    "long": CHEAP,
    "furniture": CHEAP,
    "vehicle": DEAR,
    "machine": DEAR,
}
BE = english_verb("be was been being")
COST = english_verb("cost cost cost costing", is_state=True)


def clock(at: Clock) -> str:
    """*三時*, *三時半*, *三時四十五分*."""
    hour = f"{words(at.hour, 'ja')}時"
    if at.minute == 30:
        return f"{hour}半"
    return f"{hour}{words(at.minute, 'ja')}分" if at.minute else hour


def date(day: Date) -> str:
    """*千九百九十年五月三日*, without a year if there is none."""
    text = f"{words(day.month + 1, 'ja')}月{words(day.day, 'ja')}日"
    return f"{words(day.year, 'ja')}年{text}" if day.year else text


def prices() -> Space[Both]:
    """What things cost: *花子さんが買った本は三千円です*."""

    def price(thing: Thing, yen: int) -> Both:
        clause = Clause(COST, thing.english(), complement=Phrase("", f"{words(yen, 'en')} yen"))
        return f"{thing.japanese('は')}{words(yen, 'ja')}円です。", english.statement(clause) + "."

    def bought(who: Person, verb: JapaneseVerb, thing: Thing, yen: int) -> Both:
        noun = thing.english().en[0]
        return (
            f"{who.ja}が{verb.forms[2]}{thing.japanese('は')}{words(yen, 'ja')}円です。",
            f"the {noun} that {who.en[0]} {verb.en.en[1]} costs {words(yen, 'en')} yen.",
        )

    nouns = [noun for kind in PRICED for noun in NOUNS[kind]]
    plain = Union(*((1, Build(price, fixed(noun), PRICED[noun.kind])) for noun in nouns))
    shopping = [verb for verb in VERBS if verb.en.en[0] in ("buy", "sell", "look for")]
    spaces = []
    for noun in nouns:
        thing = Build(
            lambda noun, adjective: Thing(noun, adjective=adjective),
            OneOf([noun]),
            adjectives(noun),
        )
        verbs = [verb for verb in shopping if noun.kind in verb.kinds]
        spaces.append((1, Build(bought, OneOf(PEOPLE), OneOf(verbs), thing, PRICED[noun.kind])))
    return Union((1, plain), (1, Union(*spaces)))


def all_facts() -> Space[Both]:
    """What there is, how it is, ages, births and times of day."""

    def exists(place: Both, noun: Noun, count: int, adjective: Adjective | None) -> Both:
        thing = counted(noun, count, adjective)
        verb = "います" if noun.kind == "animal" else "あります"
        there = "there is" if count == 1 else "there are"
        ja = f"{place[0].removesuffix('で')}に{thing.japanese('が')}{verb}。"
        return ja, f"{there} {thing.english().en[0]} {place[1]}."

    def is_so(noun: Noun, which: Both, adjective: Adjective, form: int) -> Both:
        thing = Thing(noun, which)
        tense: Tense = "past" if form > 1 else "present"
        complement = Phrase("", adjective.en)
        clause = Clause(
            BE, thing.english(), complement=complement, tense=tense, is_negated=form % 2 == 1
        )
        return f"{thing.japanese('は')}{adjective.predicates[form]}。", english.statement(
            clause
        ) + "."

    rooms = Union(
        *(
            (1, Build(exists, OneOf(PLACES), OneOf([noun]), FEW, adjectives(noun)))
            for kind in ("animal", "furniture", "book")
            for noun in NOUNS[kind]
        )
    )
    qualities = Union(
        *(
            (1, Build(is_so, OneOf([noun]), OneOf(DETERMINERS), OneOf(adjectives), OneOf(range(4))))
            for kind in NOUNS
            for noun in NOUNS[kind]
            for adjectives in [[ADJECTIVES[name] for name in QUALITIES[kind]]]
        )
    )
    return Union((3, rooms), (3, qualities), (3, _numbers()))


def _numbers() -> Space[Both]:
    """Ages, births, the time and the date."""
    named = OneOf([person for person in (*PEOPLE, *TELLERS) if person.ja.endswith("さん")])
    ages = Build(
        lambda who, years: (
            f"{who.ja}は{words(years, 'ja')}歳です。",
            f"{who.en[0]} is {words(years, 'en')} years old.",
        ),
        named,
        OneOf(range(2, 100)),
    )
    births = Build(
        lambda who, day, year: (
            f"{who.ja}は{date(Date(day[0], day[1], year))}に生まれました。",
            f"{who.en[0]} was born on {english.date(Date(day[0], day[1], year))}.",
        ),
        named,
        OneOf(DAYS),
        OneOf(range(1950, 2025)),
    )
    minutes = OneOf([0, 5, 10, 15, 20, 30, 40, 45, 50, 55])
    clocks = Build(
        lambda hour, minute: (
            f"今{clock(Clock(hour, minute))}です。",
            f"it is {english.clock(Clock(hour, minute))} now.",
        ),
        OneOf(range(1, 13)),
        minutes,
    )
    dates = Build(
        lambda day: (f"今日は{date(Date(*day))}です。", f"today is {english.date(Date(*day))}."),
        OneOf(DAYS),
    )
    return Union((2, ages), (4, births), (0.5, clocks), (1, dates))
