"""What people do, in Romanian and English: noun phrases that agree, verbs, times."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from adasparse.translation.grammar import english
from adasparse.translation.grammar.meaning import (
    Agreement,
    Clause,
    Modal,
    Phrase,
    Pronoun,
    Tense,
    Time,
)
from adasparse.translation.grammar.numbers import countable, romanian_count, words
from adasparse.translation.grammar.romanian_english.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PRONOUNS,
    QUALITIES,
    TELLERS,
    VERBS,
    Adjective,
    Noun,
    Person,
    RomanianVerb,
    definite,
)
from adasparse.translation.grammar.spaces import Build, OneOf, Space, Union, maybe

__all__ = [
    "Both",
    "Deed",
    "Said",
    "adjectives",
    "conjugate",
    "deeds",
    "fixed",
    "noun_phrase",
    "reports",
]

Both = tuple[str, str]
AMOUNTS: Space[int] = Union(
    (3, OneOf(range(2, 100))), (2, OneOf(countable(100, 999))), (1, OneOf(countable(1000, 9999)))
)
#: First and third person singular, then plural.
MODALS = {
    "want to": ("vreau", "vrea", "vrem", "vor"),
    "can": ("pot", "poate", "putem", "pot"),
    "have to": ("trebuie", "trebuie", "trebuie", "trebuie"),
}
MY = {"m": ("meu", "mei"), "n": ("meu", "mele"), "f": ("mea", "mele")}
NOW = [Phrase("acum", "now"), Phrase("azi", "today")]
WEEKDAYS = [
    Phrase(ro, f"on {en}")
    for ro, en in zip(
        ["luni", "marți", "miercuri", "joi", "vineri", "sâmbătă", "duminică"],
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
        strict=True,
    )
]
BEFORE = [Phrase("ieri", "yesterday"), Phrase("săptămâna trecută", "last week"), *WEEKDAYS]
LATER = [Phrase("mâine", "tomorrow"), Phrase("săptămâna viitoare", "next week"), *WEEKDAYS]
SAYING = (("spune", "says"), ("crede", "believes"), ("știe", "knows"))


@dataclass(frozen=True)
class Said:
    """A noun phrase in both languages, with what verbs agree with."""

    ro: str
    en: Pronoun


def _ready(ro: str, en: str, *, is_plural: bool = False) -> Said:
    return Said(ro, Pronoun(("", "", ""), (en, en), Agreement(3, is_plural)))


def noun_phrase(noun: Noun, determiner: str, number: int, adjective: Adjective | None) -> Said:
    """*un măr roșu*, *merele roșii*, *mașina mea*, *douăzeci și trei de mașini roșii*.

    ``determiner`` is ``a``, ``the``, ``my`` or ``count``; a ``number`` of 0 is a
    plural without one.
    """
    is_plural = number != 1
    word = noun.plural if is_plural else noun.singular
    after = f" {adjective.form(noun.gender, is_plural=is_plural)}" if adjective else ""
    before = f"{adjective.en} " if adjective else ""
    en_noun = before + (noun.en_plural if is_plural else noun.en)
    if determiner == "a":
        return _ready(
            f"{'o' if noun.gender == 'f' else 'un'} {word}{after}", english.with_article(en_noun)
        )
    if determiner == "count":
        count = romanian_count(number, feminine=noun.gender != "m")
        text = f"{count} {word}{after}"
        return _ready(text, f"{words(number, 'en')} {en_noun}", is_plural=True)
    text = definite(noun, is_plural=is_plural)
    if determiner == "my":
        text = f"{text} {MY[noun.gender][is_plural]}"
    return _ready(text + after, f"{determiner} {en_noun}", is_plural=is_plural)


def adjectives(noun: Noun) -> Space[Adjective | None]:
    """An adjective that suits the noun, or none."""
    return maybe(0.6, OneOf([ADJECTIVES[name] for name in QUALITIES[noun.kind]]))


def fixed(noun: Noun, *, numbers: tuple[int, ...] = (1, 0)) -> Space[Said]:
    """The thing or things, or mine."""
    owned = ["the"] if noun.kind in ("food", "baked") else ["the", "my"]
    parts = OneOf([noun]), OneOf(owned), OneOf(numbers), adjectives(noun)
    return Build(noun_phrase, *parts)


def _loose(noun: Noun, counts: Space[int]) -> Space[Said]:
    suited = adjectives(noun)
    return Union(
        (1, Build(noun_phrase, OneOf([noun]), OneOf(["a"]), OneOf([1]), suited)),
        (2, Build(noun_phrase, OneOf([noun]), OneOf(["count"]), counts, suited)),
    )


def _each(kinds: tuple[str, ...], space: Callable[[Noun], Space[Said]]) -> Space[Said]:
    return Union(*((1, space(noun)) for kind in kinds for noun in NOUNS[kind]))


def _person(person: Person) -> Said:
    return Said(
        person.ro, Pronoun(("", "", ""), person.en, Agreement(person.person, person.is_plural))
    )


@cache
def _subjects() -> Space[Said]:
    names = OneOf([_person(name) for name in NAMES])
    nouns = Build(noun_phrase, OneOf(NOUNS["person"]), OneOf(["the"]), OneOf([1, 0]), OneOf([None]))
    return Union((5, names), (2, OneOf([_person(who) for who in PRONOUNS])), (2, nouns))


def conjugate(verb: RomanianVerb, tense: Tense, modal: str, who: Agreement) -> str:
    """The verb with its auxiliaries: *cumpără*, *a cumpărat*, *va cumpăra*, *vrea să cumpere*."""
    index = (2 if who.plural else 0) + (who.person == 3)
    if modal:
        inner = verb.subjunctive if who.person == 3 else verb.present[index]
        return f"{MODALS[modal][index]} să {inner}"
    if tense == "past":
        return f"{('am', 'a', 'am', 'au')[index]} {verb.participle}"
    if tense == "future":
        return f"{('voi', 'va', 'vom', 'vor')[index]} {verb.infinitive}"
    return verb.present[index]


@dataclass(frozen=True)
class Deed:
    """Who does what when, before it is said."""

    subject: Said
    verb: RomanianVerb
    thing: Said
    tense: Tense
    modal: str
    time: Phrase | None
    is_negated: bool

    def romanian(self) -> str:
        """Subject, verb, object, time."""
        denial = "nu " if self.is_negated else ""
        verb = conjugate(self.verb, self.tense, self.modal, self.subject.en.agreement)
        text = f"{self.subject.ro} {denial}{verb} {self.thing.ro}"
        return f"{text} {self.time.source}" if self.time else text

    def english(self, *, is_question: bool = False) -> str:
        """The same in English."""
        clause = Clause(
            self.verb.en,
            self.subject.en,
            self.thing.en,
            tense=self.tense,
            modal=Modal(("", ""), self.modal) if self.modal else None,
            time=Time(self.time) if self.time else None,
            is_negated=self.is_negated,
        )
        return english.question(clause) if is_question else english.statement(clause)


@cache
def deeds(*, can_negate: bool) -> Space[Deed]:
    """What people do with things; only what is definite is denied."""
    settings: Space[tuple[Tense, str, Phrase | None]] = Union(
        (3, OneOf([("present", "", time) for time in (None, *NOW)])),
        (4, OneOf([("past", "", time) for time in (None, *BEFORE)])),
        (2, OneOf([("future", "", time) for time in (None, *LATER)])),
        (3, OneOf([("present", modal, time) for modal in MODALS for time in (None, *LATER[:2])])),
    )
    denial = Union((3, OneOf([False])), (1, OneOf([True]))) if can_negate else OneOf([False])
    spaces: list[tuple[float, Space[Deed]]] = []
    for verb in VERBS:
        counts = AMOUNTS if verb.is_bulk else OneOf(range(2, 21))
        definite_things = _each(verb.kinds, fixed)
        other_things = _each(verb.kinds, partial(_loose, counts=counts))
        for things, denied in ((definite_things, denial), (other_things, OneOf([False]))):
            parts = _subjects(), OneOf([verb]), things, settings, denied
            spaces.append((1, Build(_deed, *parts)))
    return Union(*spaces)


def _deed(
    subject: Said,
    verb: RomanianVerb,
    thing: Said,
    setting: tuple[Tense, str, Phrase | None],
    is_negated: bool,
) -> Deed:
    return Deed(subject, verb, thing, *setting, is_negated)


def reports() -> Space[Both]:
    """*Ana crede că Mihai a vândut mașina*."""
    return Build(
        lambda who, verb, deed: (
            f"{who.ro} {verb[0]} că {deed.romanian()}",
            f"{who.en[0]} {verb[1]} that {deed.english()}",
        ),
        OneOf(TELLERS),
        OneOf(SAYING),
        deeds(can_negate=True),
    )
