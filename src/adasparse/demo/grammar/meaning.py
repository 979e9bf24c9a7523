"""Meanings of sentences, before they are said in German or English."""

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "DAYS",
    "Adjective",
    "Agreement",
    "Clause",
    "Clock",
    "Date",
    "Modal",
    "Name",
    "Nominal",
    "Noun",
    "NounPhrase",
    "Pair",
    "Phrase",
    "Pronoun",
    "Time",
    "Verb",
    "agreement",
    "english_verb",
]

Gender = Literal["m", "f", "n"]
Tense = Literal["present", "past", "perfect", "future"]


@dataclass(frozen=True)
class Agreement:
    """Person (1 or 3), number and gender: what verbs and possessives agree with."""

    person: int = 3
    plural: bool = False
    gender: Gender = "m"


@dataclass(frozen=True)
class Noun:
    """A noun in both languages. ``weak`` is the German ending outside the nominative singular."""

    de: str
    gender: Gender
    de_plural: str
    en: str
    en_plural: str
    kind: str
    weak: str = ""

    @property
    def is_mass(self) -> bool:
        """Whether it is measured, not counted: coffee, bread."""
        return not self.de_plural


@dataclass(frozen=True)
class Adjective:
    """An adjective in both languages: the form alone, the stem before endings, the comparative."""

    de: str
    en: str
    de_stem: str
    de_more: str
    en_more: str


@dataclass(frozen=True)
class Verb:
    """A verb in both languages, with what it asks of its object.

    ``de`` is infinitive, third person present, past and participle, without the separable
    ``prefix``; ``en`` is base, past, participle and -ing form. ``case`` is the German case of the
    object; with ``de_preposition`` and ``en_preposition`` the object stands in a phrase of its own.
    The English ``particle`` comes before the object (*pick up the car*) unless that is a pronoun.
    ``is_state`` verbs have no progressive in English. ``is_sudden`` verbs are not told of the
    present, ``is_bulk`` ones go with large numbers of things, ``has_place`` ones with a place.
    """

    de: tuple[str, str, str, str]
    en: tuple[str, str, str, str]
    kinds: tuple[str, ...] = ()
    prefix: str = ""
    auxiliary: Literal["haben", "sein"] = "haben"
    case: Literal["acc", "dat"] = "acc"
    de_preposition: str = ""
    en_preposition: str = ""
    particle: str = ""
    is_state: bool = False
    takes_modal: bool = True
    is_sudden: bool = False
    is_bulk: bool = False
    has_place: bool = False


def english_verb(forms: str, *, is_state: bool = False) -> Verb:
    """A verb of which only the English forms are used; ``_`` stands for a space."""
    base, past, participle, progressive = (form.replace("_", " ") for form in forms.split())
    return Verb(("", "", "", ""), (base, past, participle, progressive), is_state=is_state)


@dataclass(frozen=True)
class Modal:
    """A modal verb: singular and plural in German, and its English auxiliary or verb."""

    de: tuple[str, str]
    en: str


@dataclass(frozen=True)
class Name:
    """A proper name; German *Herr* is declined."""

    de: str
    en: str
    gender: Gender


@dataclass(frozen=True)
class Pronoun:
    """A personal or asking pronoun, with its forms by German case and for English subjects."""

    de: tuple[str, str, str]
    en: tuple[str, str]
    agreement: Agreement


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what stands before and after it.

    ``determiner`` is one of ``the``, ``a``, ``this``, ``every``, ``which``, ``how many``, ``my``,
    ``our``, ``own`` (of the subject), ``no``, ``many``, ``several``, ``all`` or empty; ``count``
    stands in its place. ``relative`` lacks the subject or, if it has one, the object.
    """

    noun: Noun
    determiner: str = ""
    is_plural: bool = False
    count: int = 0
    adjectives: tuple[Adjective, ...] = ()
    relative: "Clause | None" = None


@dataclass(frozen=True)
class Pair:
    """Two joined by *and*."""

    first: "Name | NounPhrase"
    second: "Name | NounPhrase"


Nominal = Name | Pronoun | NounPhrase | Pair


def agreement(nominal: Nominal) -> Agreement:
    """Person and number that a verb agrees with when this is its subject."""
    if isinstance(nominal, Pronoun):
        return nominal.agreement
    if isinstance(nominal, Pair):
        return Agreement(plural=True)
    if isinstance(nominal, Name):
        return Agreement(gender=nominal.gender)
    return Agreement(plural=nominal.is_plural, gender=nominal.noun.gender)


@dataclass(frozen=True)
class Phrase:
    """A fixed phrase in the other language and in English, such as *gestern* and *yesterday*."""

    source: str
    en: str


@dataclass(frozen=True)
class Clock:
    """A time on a twelve-hour clock."""

    hour: int
    minute: int


@dataclass(frozen=True)
class Date:
    """A day of a month (0 is January), of a year unless that is 0."""

    day: int
    month: int
    year: int = 0


#: Days and months of a year that has no 29th of February.
DAYS = [
    (day, month)
    for month, length in enumerate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
    for day in range(1, length + 1)
]


@dataclass(frozen=True)
class Time:
    """A day, a time of day, or both; ``is_first`` puts it before the rest of a statement."""

    day: Phrase | Date | None = None
    clock: Clock | None = None
    is_first: bool = False


@dataclass(frozen=True)
class Clause:
    """Who does what, when, where and how, in no order yet.

    ``indirect`` is the German dative object and comes before ``direct``; ``complement`` is a
    predicate or a phrase that stays close to the verb; ``often`` a frequency, ``phase`` one of
    ``already``, ``not yet`` or empty.
    """

    verb: Verb
    subject: Nominal | None = None
    direct: Nominal | None = None
    indirect: Nominal | None = None
    complement: Phrase | None = None
    tense: Tense = "present"
    modal: Modal | None = None
    is_negated: bool = False
    often: Phrase | None = None
    phase: str = ""
    place: NounPhrase | None = None
    time: Time | None = None
