"""German-English questions: yes or no, and asking for one part of the sentence."""

from adasparse.demo.grammar import english, german
from adasparse.demo.grammar.german_english.clauses import (
    actions,
    actors,
    doings,
    places,
    with_subject,
)
from adasparse.demo.grammar.german_english.facts import STATES, Both, predicates
from adasparse.demo.grammar.german_english.nouns import NOUNS, WHO
from adasparse.demo.grammar.german_english.phrases import named, phrases, subjects
from adasparse.demo.grammar.german_english.settings import Setting, settings
from adasparse.demo.grammar.german_english.verbs import BE, COST, TIMETABLE, TRANSITIVE
from adasparse.demo.grammar.meaning import Clause, Nominal, NounPhrase, Verb
from adasparse.demo.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["all_questions"]


def _asked(clause: Clause, de: str = "", en: str = "") -> Both:
    return german.question(clause, opener=de), english.question(clause, opener=en)


def _yes_or_no() -> Space[Both]:
    """Ask for yes or no: *hat Anna das Auto gekauft?*."""
    states = Build(
        lambda who, how: Clause(BE, who, complement=how),
        named("first"),
        predicates(STATES, degrees=2),
    )
    return Union((6, Build(_asked, actions("first", "question"))), (1, Build(_asked, states)))


def _circumstances() -> Space[Both]:
    """*Wann*, *warum*, *wo*."""
    when = OneOf([("wann", "when"), ("warum", "why")])
    located = [verb for verb in TRANSITIVE if verb.has_place]
    deeds = Union(*((1, doings(verb, "asked", has_place=False)) for verb in located))
    where = Build(with_subject, subjects("first", has_owner=True), deeds)
    return Union(
        (2, Build(lambda word, clause: _asked(clause, *word), when, actions("first", "asked"))),
        (1, Build(lambda clause: _asked(clause, "wo", "where"), where)),
    )


def _who() -> Space[Both]:
    """*Wer hat den Apfel gegessen?* English needs no *do* here."""
    deeds = Union(*((1, doings(verb, "question")) for verb in TRANSITIVE))
    return Build(
        lambda clause: (
            german.statement(clause),
            english.statement(clause, perfect_is_past=True),
        ),
        Build(lambda clause: with_subject(WHO, clause), deeds),
    )


def _what() -> Space[Both]:
    """Ask for the object: *was hat Anna gefunden?*, *wem hat sie geholfen?*."""
    spaces = []
    for verb in TRANSITIVE:
        if verb.de_preposition:
            continue
        openers = []
        if "person" in verb.kinds:
            openers.append(("wen" if verb.case == "acc" else "wem", "who"))
        if any(kind not in ("person", "young", "family") for kind in verb.kinds):
            openers.append(("was", "what"))
        spaces.append((1, _gapped(verb, OneOf(openers))))
    return Union(*spaces)


def _which() -> Space[Both]:
    """Ask for one of several: *welchen Mantel hat Anna gekauft?*, or for their number."""
    spaces = []
    for verb in TRANSITIVE:
        kinds = [kind for kind in verb.kinds if kind != "family" and not NOUNS[kind][0].is_mass]
        if verb.de_preposition or not kinds:
            continue
        things = Union(
            (2, phrases(kinds, ["which"])), (1, phrases(kinds, ["how many"], is_plural=True))
        )
        openers = Build(_opener, OneOf([verb]), things)
        spaces.append((1, _gapped(verb, openers)))
    return Union(*spaces)


def _opener(verb: Verb, phrase: NounPhrase) -> Both:
    return german.nominal(phrase, verb.case), english.nominal(phrase)


def _gapped(verb: Verb, openers: Space[tuple[str, str]]) -> Space[Both]:
    """Questions for the object of a verb."""

    def ask(opener: Both, subject: Nominal, place: NounPhrase | None, setting: Setting) -> Both:
        return _asked(setting.of(Clause(verb, subject, place=place)), *opener)

    who = Union(
        (4, actors("first", "asked", has_owner=True)),
        (1, actors("first", "asked", has_owner=False)),
    )
    setting = settings("asked", is_sudden=verb.is_sudden, takes_modal=verb.takes_modal)
    return Build(ask, openers, who, places(verb.has_place), setting)


def _measures() -> Space[Both]:
    """Ask for a price or a time: *um wie viel Uhr fährt der Zug ab?*."""
    priced = phrases(
        ["vehicle", "furniture", "clothing", "device", "portable", "text"],
        ["the", "this"],
    )
    prices = Build(lambda thing: _asked(Clause(COST, thing), "wie viel", "how much"), priced)
    times = Union(
        *(
            (
                1,
                Build(
                    lambda verb, what: _asked(Clause(verb, what), "um wie viel Uhr", "what time"),
                    OneOf([verb]),
                    phrases(verb.kinds, ["the", "this"]),
                ),
            )
            for verb in TIMETABLE
        )
    )
    return Union((2, prices), (1, times))


def all_questions() -> Space[Both]:
    """All of the above, without question marks."""
    return Union(
        (5, _yes_or_no()),
        (3, _circumstances()),
        (2, _who()),
        (2, _what()),
        (3, _which()),
        (1, _measures()),
    )
