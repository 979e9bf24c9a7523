"""German-English statements of fact: how things are, what they cost, when they happen."""

from adasparse.demo.grammar import english, german
from adasparse.demo.grammar.german_english.nouns import (
    ADJECTIVES,
    CITIES,
    NOUNS,
    QUALITIES,
)
from adasparse.demo.grammar.german_english.phrases import (
    BIRTH_DATES,
    CLOCKS,
    DATES,
    WEEKDAYS,
    counted,
    fixed,
    named,
    phrases,
    subjects,
)
from adasparse.demo.grammar.german_english.verbs import BE, BELONG, COST, LIVE, TIMETABLE
from adasparse.demo.grammar.meaning import (
    Clause,
    Name,
    Nominal,
    Noun,
    NounPhrase,
    Phrase,
    Tense,
    Time,
    Verb,
)
from adasparse.demo.grammar.numbers import countable, words
from adasparse.demo.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["STATES", "Both", "all_facts", "predicates", "said"]

Both = tuple[str, str]
STATES = ("müde", "traurig", "glücklich", "krank")
DEGREES = (("", ""), ("sehr ", "very "), ("zu ", "too "))
PRICED = ("vehicle", "furniture", "clothing", "device", "portable", "text")
ALL_DETERMINERS = ["the", "this", "my", "our"]


def said(clause: Clause) -> Both:
    """The clause as a statement, in both languages."""
    return german.statement(clause), english.statement(clause)


def predicates(names: tuple[str, ...], *, degrees: int = 3) -> Space[Phrase]:
    """Adjectives said of a subject, with nothing, *very* or *too*; *broken* knows no degrees."""
    return OneOf(
        [
            Phrase(de + ADJECTIVES[name].de, en + ADJECTIVES[name].en)
            for name in names
            for de, en in DEGREES[:degrees]
            if not (de and name == "kaputt")
        ]
    )


def _states() -> Space[Clause]:
    """States of people: *Anna ist sehr müde*."""
    negated = Union((5, OneOf([False])), (1, OneOf([True])))
    who = Union((4, subjects("first", has_owner=True)), (1, subjects("first", has_owner=False)))
    return Build(_is, who, predicates(STATES, degrees=2), OneOf(["present", "past"]), negated)


def _is(subject: Nominal, complement: Phrase, tense: Tense, is_negated: bool) -> Clause:
    return Clause(BE, subject, complement=complement, tense=tense, is_negated=is_negated)


def _qualities() -> Space[Clause]:
    """States of things: *dieser Stuhl ist nicht teuer*."""
    kinds = [
        kind for kind in QUALITIES if kind not in ("person", "young", "family", "drink", "dish")
    ]
    negated = Union((5, OneOf([False])), (1, OneOf([True])))
    spaces = []
    for kind in kinds:
        complements = predicates(tuple(QUALITIES[kind]))
        tenses = OneOf(["present", "past"] if kind == "event" else ["present"])
        spaces.append((1, Build(_is, _things(kind), complements, tenses, negated)))
    return Union(*spaces)


def _things(kind: str) -> Space[NounPhrase]:
    if NOUNS[kind][0].is_mass:
        return phrases([kind], ["the"], has_adjectives=False)
    is_public = kind in ("place", "transport", "event")
    determiners = ALL_DETERMINERS[: 2 if is_public else None]
    return Union(
        (3, phrases([kind], determiners, has_adjectives=False)),
        (1, phrases([kind], determiners, is_plural=True, has_adjectives=False)),
    )


def _comparisons() -> Space[Clause]:
    """*Mein Tisch ist teurer als dieser Stuhl*, *Anna ist älter als Thomas*."""
    spaces = []
    for kind in (*PRICED, "animal", "home"):
        names = [name for name in QUALITIES[kind] if name != "kaputt"]
        for noun in NOUNS[kind]:
            rest = [other for other in NOUNS[kind] if other != noun]
            parts = OneOf([noun]), OneOf(ALL_DETERMINERS), OneOf(names), OneOf(rest)
            spaces.append((1, Build(_compare_things, *parts, OneOf(ALL_DETERMINERS))))
    ages = OneOf(["alt", "jung", "klug", "freundlich", "nett", "berühmt"])
    people = Build(_compare, named("first"), ages, named("second"))
    return Union((3, Union(*spaces)), (1, people))


def _compare_things(noun: Noun, which: str, name: str, other: Noun, whose: str) -> Clause:
    return _compare(NounPhrase(noun, which), name, NounPhrase(other, whose))


def _compare(subject: Name | NounPhrase, name: str, other: Name | NounPhrase) -> Clause:
    than = Phrase(
        f"{ADJECTIVES[name].de_more} als {german.nominal(other, 'nom')}",
        f"{ADJECTIVES[name].en_more} than {english.nominal(other)}",
    )
    return Clause(BE, subject, complement=than)


def _prices() -> Space[Clause]:
    """*Der rote Mantel kostet neunzig Euro und fünfzig Cent*."""
    cents: Space[int] = Union((2, OneOf([0])), (1, OneOf(range(2, 100))))
    low = Union((1, OneOf(range(1, 21))), (3, OneOf(countable(21, 99))))
    high = Union((1, OneOf(countable(100, 999))), (1, OneOf(countable(1000, 9999))))
    amounts: dict[str, Space[int]] = {"text": low, "vehicle": high, "device": high}
    middle = Union((3, low), (1, OneOf(countable(100, 999))))
    return Union(
        *(
            (
                len(NOUNS[kind]),
                Build(
                    lambda thing, euros, cents: Clause(
                        COST, thing, complement=_price(euros, cents)
                    ),
                    phrases([kind], ALL_DETERMINERS),
                    amounts.get(kind, middle),
                    cents,
                ),
            )
            for kind in PRICED
        )
    )


def _price(euros: int, cents: int) -> Phrase:
    de = f"{'einen' if euros == 1 else words(euros, 'de')} Euro"
    en = f"{words(euros, 'en')} {'euro' if euros == 1 else 'euros'}"
    if not cents:
        return Phrase(de, en)
    return Phrase(f"{de} und {words(cents, 'de')} Cent", f"{en} and {words(cents, 'en')} cents")


def _timetables() -> Space[Clause]:
    """*Der Zug kommt am Montag um halb vier an*."""
    when = Build(Time, OneOf([None, *WEEKDAYS]), CLOCKS)
    spaces = []
    for verb in TIMETABLE:
        what = phrases(verb.kinds, ["the", "this"])
        parts = OneOf([verb]), what, OneOf(["present", "past"]), when
        spaces.append((1, Build(_happens, *parts)))
    return Union(*spaces)


def _happens(verb: Verb, subject: NounPhrase, tense: Tense, time: Time) -> Clause:
    return Clause(verb, subject, tense=tense, time=time)


def _living() -> Space[Clause]:
    """*Mein Bruder wohnt in Wien*."""
    who = Union((4, subjects("first", has_owner=True)), (1, subjects("first", has_owner=False)))
    cities = OneOf([Phrase(f"in {de}", f"in {en}") for de, en in CITIES])
    negated = Union((5, OneOf([False])), (1, OneOf([True])))
    return Build(
        lambda subject, city, tense, is_negated: Clause(
            LIVE, subject, complement=city, tense=tense, is_negated=is_negated
        ),
        who,
        cities,
        OneOf(["present", "past"]),
        negated,
    )


def _belonging() -> Space[Clause]:
    """*Dieses Fahrrad gehört unserem Onkel*."""
    owners = Union((2, named("object")), (1, fixed(("family",))), (1, fixed(("person",))))
    return Build(
        lambda thing, owner: Clause(BELONG, thing, direct=owner),
        phrases(PRICED, ["the", "this"]),
        owners,
    )


def _ages() -> Space[Both]:
    return Build(
        lambda name, years: (
            f"{name.de} ist {words(years, 'de')} Jahre alt",
            f"{name.en} is {words(years, 'en')} years old",
        ),
        Union((1, named("first")), (1, named("second"))),
        OneOf(countable(2, 99)),
    )


def _births() -> Space[Both]:
    return Build(
        lambda name, day: (
            f"{name.de} wurde am {german.date(day)} geboren",
            f"{name.en} was born on {english.date(day)}",
        ),
        Union((1, named("first")), (1, named("second"))),
        BIRTH_DATES,
    )


def _clocks() -> Space[Both]:
    hours = Build(lambda at: (f"es ist {german.clock(at)}", f"it is {english.clock(at)}"), CLOCKS)
    days = Build(
        lambda day: (
            f"heute ist der {german.date(day, case='nom')}",
            f"today is {english.date(day)}",
        ),
        DATES,
    )
    return Union((1, hours), (1, days))


def _existence() -> Space[Both]:
    """*In der Bibliothek gibt es dreihundert Bücher*."""
    spaces = []
    for noun in NOUNS["place"]:
        is_library = noun.en == "library"
        kinds = ("text",) if is_library else ("furniture", "device", "portable")
        things, one = counted(kinds, is_bulk=is_library), phrases(kinds, ["a"])
        assert things is not None
        what = Union((2, things), (1, one))
        spaces.append((1, Build(_there, OneOf([NounPhrase(noun, "the")]), what)))
    return Union(*spaces)


def _there(where: NounPhrase, what: NounPhrase) -> Both:
    verb = "there are" if what.is_plural else "there is"
    return (
        f"{german.place(where)} gibt es {german.nominal(what, 'acc')}",
        f"{verb} {english.nominal(what)} in {english.nominal(where)}",
    )


def all_facts() -> Space[Both]:
    """All of the above."""
    clauses = (
        (3, _states()),
        (4, _qualities()),
        (3, _comparisons()),
        (5, _prices()),
        (4, _timetables()),
        (2, _living()),
        (2, _belonging()),
    )
    return Union(
        *((weight, Build(said, space)) for weight, space in clauses),
        (2, _ages()),
        (2, _births()),
        (1, _clocks()),
        (3, _existence()),
    )
