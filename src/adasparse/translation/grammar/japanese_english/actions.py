"""What people do, in Japanese and English: things and their counters, polite verbs."""

from dataclasses import dataclass
from functools import cache

from adasparse.translation.grammar import english
from adasparse.translation.grammar.japanese_english.words import (
    ADJECTIVES,
    CITIES,
    COUNTERS,
    DRINKS,
    NOUNS,
    PEOPLE,
    PLACES,
    QUALITIES,
    TELLERS,
    VEHICLES,
    VERBS,
    Adjective,
    JapaneseVerb,
    Noun,
    Person,
)
from adasparse.translation.grammar.meaning import (
    Agreement,
    Clause,
    Modal,
    Phrase,
    Pronoun,
    Tense,
    Time,
    english_verb,
)
from adasparse.translation.grammar.numbers import words
from adasparse.translation.grammar.spaces import Build, OneOf, Space, Union, maybe

__all__ = [
    "ASKED",
    "BEFORE",
    "DETERMINERS",
    "ENDINGS",
    "FEW",
    "Both",
    "Deed",
    "Ending",
    "Thing",
    "adjectives",
    "counted",
    "deeds",
    "fixed",
    "reports",
    "statements",
    "travels",
]

Both = tuple[str, str]
DETERMINERS = (("この", "this"), ("その", "that"), ("私の", "my"))
FEW, MANY = OneOf(range(1, 21)), Union((2, OneOf(range(1, 100))), (1, OneOf(range(100, 1000))))
GO = english_verb("go went gone going")


@dataclass(frozen=True)
class Ending:
    """A polite ending on a form of the verb, and what it is in English."""

    form: int
    text: str
    tense: Tense
    modal: str = ""
    is_negated: bool = False
    times: tuple[Phrase | None, ...] = (None,)
    often: Phrase | None = None


BEFORE = (
    None,
    Phrase("昨日", "yesterday"),
    Phrase("一昨日", "the day before yesterday"),
    Phrase("先週", "last week"),
)
LATER = (
    Phrase("明日", "tomorrow"),
    Phrase("明後日", "the day after tomorrow"),
    Phrase("来週", "next week"),
)
#: Forms: 0 before *masu*, 1 *te*, 2 *ta*, 3 dictionary, 4 before *nai*. The plain present is told
#: with a time alone: without one it could be habit or future.
ENDINGS = (
    Ending(0, "ました", "past", times=BEFORE),
    Ending(0, "ませんでした", "past", is_negated=True, times=BEFORE),
    Ending(0, "ます", "future", times=LATER),
    Ending(0, "ません", "future", is_negated=True, times=LATER),
    Ending(0, "ます", "present", often=Phrase("毎日", "every day")),
    Ending(0, "ます", "present", often=Phrase("毎週", "every week")),
    Ending(0, "ます", "present", often=Phrase("いつも", "always")),
    Ending(1, "います", "present", times=(None, Phrase("今", "now"))),
    Ending(1, "いません", "present", is_negated=True),
    Ending(3, "ことができます", "present", "can"),
    Ending(3, "ことができません", "present", "can", is_negated=True),
    Ending(4, "なければなりません", "present", "have to", times=(None, *LATER)),
)
#: Asked, these are natural.
ASKED = tuple(
    ending for ending in ENDINGS if ending.text in ("ました", "ます", "います", "ことができます")
)


@dataclass(frozen=True)
class Thing:
    """A noun with its number or determiner, said in either language.

    ``count`` is 0 for a definite thing, and for drinks, which have no number.
    """

    noun: Noun
    determiner: Both = ("", "")
    count: int = 0
    adjective: Adjective | None = None

    def japanese(self, particle: str) -> str:
        """The thing with its particle; a counter follows the particle."""
        before = self.adjective.before if self.adjective else ""
        counter = words(self.count, "ja") + COUNTERS[self.noun.kind] if self.count else ""
        return f"{self.determiner[0]}{before}{self.noun.ja}{particle}{counter}"

    def english(self) -> Pronoun:
        """The thing, with what verbs agree with."""
        noun = self.noun.en_plural if self.count > 1 else self.noun.en
        before = words(self.count, "en") if self.count else self.determiner[1]
        adjective = self.adjective.en if self.adjective else ""
        text = " ".join(part for part in (before, adjective, noun) if part)
        return Pronoun(("", "", ""), (text, text), Agreement(3, self.count > 1))


def counted(noun: Noun, count: int, adjective: Adjective | None) -> Thing:
    """So many things."""
    return Thing(noun, count=count, adjective=adjective)


def adjectives(noun: Noun) -> Space[Adjective | None]:
    """An adjective that suits the noun, or none."""
    return maybe(0.6, OneOf([ADJECTIVES[name] for name in QUALITIES[noun.kind]]))


def fixed(noun: Noun) -> Space[Thing]:
    """This, that or my thing."""
    return Build(Thing, OneOf([noun]), OneOf(DETERMINERS), OneOf([0]), adjectives(noun))


@cache
def _things(verb: JapaneseVerb, *, is_negated: bool, is_habit: bool) -> Space[Thing]:
    """What is denied is definite, what is done again and again is a few at a time."""
    counts: Space[int] = OneOf(range(1, 6)) if is_habit else MANY if verb.is_bulk else FEW
    spaces: list[tuple[float, Space[Thing]]] = []
    for noun in (noun for kind in verb.kinds for noun in NOUNS[kind]):
        if not is_habit:
            spaces.append((1, fixed(noun)))
        if not is_negated:
            spaces.append((1, Build(counted, OneOf([noun]), counts, adjectives(noun))))
    if verb.drinks:
        spaces.append((1, Build(Thing, OneOf(DRINKS))))
    return Union(*spaces)


@dataclass(frozen=True)
class Deed:
    """Who does what to what, when and where, before it is said."""

    subject: Person
    verb: JapaneseVerb
    thing: Thing | None
    place: Both
    ending: Ending
    time: Phrase | None

    def japanese(self, *, subject_particle: str = "は", what: str = "", end: str = "") -> str:
        """Subject, time, place, object (or ``what``), and the verb (or ``end``)."""
        when = (
            self.time.source if self.time else self.ending.often.source if self.ending.often else ""
        )
        thing = what or (self.thing.japanese("を") if self.thing else "")
        verb = end or self.verb.forms[self.ending.form] + self.ending.text
        return f"{self.subject.ja}{subject_particle}{when}{self.place[0]}{thing}{verb}"

    def plain_past(self) -> str:
        """What was done, inside another sentence."""
        return self.japanese(subject_particle="が", end=self.verb.forms[2])

    def clause(self) -> Clause:
        """The same for English."""
        return Clause(
            self.verb.en,
            Pronoun(("", "", ""), self.subject.en, Agreement(self.subject.person)),
            self.thing.english() if self.thing else None,
            complement=Phrase("", self.place[1]) if self.place[1] else None,
            tense=self.ending.tense,
            modal=Modal(("", ""), self.ending.modal) if self.ending.modal else None,
            is_negated=self.ending.is_negated,
            often=self.ending.often,
            time=Time(self.time) if self.time else None,
        )


def deeds(
    endings: tuple[Ending, ...], people: tuple[Person, ...] = PEOPLE, *, has_thing: bool = True
) -> Space[Deed]:
    """Deeds with the given endings; without a thing, a question asks for it."""
    spaces: list[tuple[float, Space[Deed]]] = []
    for verb in VERBS:
        places: Space[Both] = OneOf([("", "")])
        if verb.has_place:
            places = Union((2, places), (1, OneOf(PLACES)))
        for ending in endings:
            things: Space[Thing | None] = OneOf([None])
            if has_thing:
                is_habit = ending.often is not None
                things = _things(verb, is_negated=ending.is_negated, is_habit=is_habit)
            parts = OneOf(people), OneOf([verb]), things, places, OneOf([ending])
            spaces.append((1, Build(Deed, *parts, OneOf(ending.times))))
    return Union(*spaces)


def statements() -> Space[Both]:
    """Who does, did or will do what."""
    return Build(
        lambda deed: (deed.japanese() + "。", english.statement(deed.clause()) + "."),
        deeds(ENDINGS),
    )


def travels() -> Space[Both]:
    """Who goes where: *花子さんは明日電車で東京に行きます*."""

    def go(who: Person, when: tuple[Phrase, Tense, str], how: Both, city: Both) -> Both:
        time, tense, ending = when
        clause = Clause(
            GO,
            Pronoun(("", "", ""), who.en, Agreement(who.person)),
            complement=Phrase("", f"to {city[1]} {how[1]}".strip()),
            tense=tense,
            time=Time(time),
        )
        ja = f"{who.ja}は{time.source}{how[0]}{city[0]}に行き{ending}。"
        return ja, english.statement(clause) + "."

    times: list[tuple[Phrase, Tense, str]] = [(time, "past", "ました") for time in BEFORE if time]
    times += [(time, "future", "ます") for time in LATER]
    return Build(go, OneOf(PEOPLE), OneOf(times), OneOf([("", ""), *VEHICLES]), OneOf(CITIES))


def reports() -> Space[Both]:
    """Who said what: *明さんは健さんが本を三冊買ったと言いました*."""
    past = ENDINGS[:1]
    people = tuple(person for person in PEOPLE if person.person == 3)
    return Build(
        lambda who, deed: (
            f"{who.ja}は{deed.plain_past()}と言いました。",
            f"{who.en[0]} said that {english.statement(deed.clause())}.",
        ),
        OneOf(TELLERS),
        deeds(past, people),
    )
