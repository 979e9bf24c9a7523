"""German-English sentences of two clauses: joined, subordinate, conditional, relative."""

from collections.abc import Callable
from dataclasses import replace

from adasparse.demo.grammar import english, german
from adasparse.demo.grammar.german_english.clauses import actions, doings, with_subject
from adasparse.demo.grammar.german_english.facts import STATES, Both, predicates, said
from adasparse.demo.grammar.german_english.nouns import CITIES, NOUNS, PRONOUNS, QUALITIES
from adasparse.demo.grammar.german_english.phrases import named, phrases, subjects
from adasparse.demo.grammar.german_english.verbs import (
    BE,
    LIVE,
    SAYING,
    TRANSITIVE,
    WONDERING,
)
from adasparse.demo.grammar.meaning import Clause, Nominal, NounPhrase, Phrase, Tense, Verb
from adasparse.demo.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["two_clauses"]

#: What people do with a thing that another sentence tells more about; no verb that splits, so that
#: the relative clause ends the sentence.
HANDLING = [
    verb
    for verb in TRANSITIVE
    if verb.en[0] in ("buy", "sell", "need", "look for", "read", "repair", "clean", "eat")
]
#: What can have been done to it before.
EARLIER = [
    verb
    for verb in TRANSITIVE
    if verb.en[0]
    in (
        "buy",
        "sell",
        "order",
        "find",
        "lose",
        "forget",
        "bake",
        "write",
        "read",
        "repair",
        "wash",
        "rent",
        "bring",
        "throw",
        "pack",
    )
]


def _tellers() -> Space[Nominal]:
    return Union((3, named("first")), (1, OneOf(PRONOUNS)))


def _reports() -> Space[Both]:
    """*Anna glaubt, dass Felix das Auto verkauft hat*."""
    inner = actions("second", "subordinate")
    main = Build(lambda who, verb: Clause(verb, who), _tellers(), OneOf(SAYING))
    wonder = Build(
        lambda who, verb: Clause(verb, who, is_negated=verb.is_state), _tellers(), OneOf(WONDERING)
    )
    return Union(
        (2, Build(_joined(", dass", " that"), main, inner)),
        (1, Build(_joined(", ob", " whether"), wonder, inner)),
    )


def _joined(de: str, en: str) -> Callable[[Clause, Clause], Both]:
    """A function that joins a main clause and a subordinate one."""

    def join(main: Clause, inner: Clause) -> Both:
        first, second = said(main)
        return (
            f"{first}{de} {german.subordinate(inner)}",
            f"{second}{en} {english.statement(inner)}",
        )

    return join


def _reasons() -> Space[Both]:
    """*Anna ist glücklich, weil Felix den Schlüssel gefunden hat*."""
    mood = Build(
        lambda who, how: Clause(BE, who, complement=how),
        _tellers(),
        predicates(("glücklich", "traurig"), degrees=2),
    )
    plan = actions("first", "consequence")
    inner = actions("second", "subordinate")
    return Build(_joined(", weil", " because"), Union((2, mood), (1, plan)), inner)


def _conditions() -> Space[Both]:
    """*Wenn Anna das Auto verkauft, muss Felix ein Fahrrad kaufen*."""
    return Build(
        lambda condition, consequence: (
            f"{german.subordinate(condition, 'wenn')}, {german.question(consequence)}",
            f"if {english.statement(condition, is_simple=True)}, {english.statement(consequence)}",
        ),
        actions("first", "condition"),
        actions("second", "consequence"),
    )


def _contrasts() -> Space[Both]:
    """*Anna kauft ein Auto, aber Felix verkauft sein Fahrrad*."""

    def join(link: tuple[str, str], first: Clause, second: Clause) -> Both:
        (de, en), (de_other, en_other) = said(first), said(second)
        return f"{de}{link[0]} {de_other}", f"{en}{link[1]} {en_other}"

    links = OneOf([(" und", ", and"), (", aber", ", but")])
    return Build(join, links, actions("first", "brief"), actions("second", "brief"))


def _described() -> Space[Both]:
    """*Der Koffer, den Anna verloren hat, ist sehr schwer*."""
    spaces = []
    for kind in (
        "vehicle",
        "furniture",
        "clothing",
        "device",
        "portable",
        "pocket",
        "text",
        "writing",
    ):
        verbs = [verb for verb in EARLIER if kind in verb.kinds]
        complements = predicates(tuple(QUALITIES[kind]))
        # A new coat that is old would be one too many.
        parts = _things_done(kind, verbs, has_adjectives=False), complements
        spaces.append((1, Build(lambda thing, how: Clause(BE, thing, complement=how), *parts)))
    return Build(said, Union(*spaces))


def _things_done(kind: str, verbs: list[Verb], *, has_adjectives: bool = True) -> Space[NounPhrase]:
    """Things of a kind with a relative clause that says what was done to them."""
    who = Union((3, subjects("second", has_owner=True)), (1, subjects("second", has_owner=False)))
    earlier = Build(lambda verb, subject: Clause(verb, subject, tense="perfect"), OneOf(verbs), who)
    things = Union(
        (3, phrases([kind], ["the"], has_adjectives=has_adjectives)),
        (1, phrases([kind], ["the"], is_plural=True, has_adjectives=has_adjectives)),
    )
    return Build(lambda thing, clause: replace(thing, relative=clause), things, earlier)


def _handled() -> Space[Both]:
    """*Anna sucht den Schlüssel, den Felix verloren hat*."""
    spaces = []
    for verb in HANDLING:
        for kind in verb.kinds:
            earlier = [other for other in EARLIER if kind in other.kinds and other != verb]
            if NOUNS[kind][0].is_mass or not earlier:
                continue
            tenses = OneOf(["present", "past"])
            parts = OneOf([verb]), named("first"), _things_done(kind, earlier), tenses
            spaces.append((1, Build(_handling, *parts)))
    return Build(said, Union(*spaces))


def _handling(verb: Verb, who: Nominal, what: NounPhrase, tense: Tense) -> Clause:
    return Clause(verb, who, what, tense=tense)


def _doers() -> Space[Both]:
    """*Der Mann, der das alte Haus gekauft hat, wohnt in Wien*."""
    deeds = Union(*((1, doings(verb, "relative")) for verb in EARLIER))
    people = Union(
        (3, phrases(["person", "young"], ["the"])),
        (1, phrases(["person", "young"], ["the"], is_plural=True)),
    )
    who = Build(lambda person, deed: replace(person, relative=deed), people, deeds)
    living = [Clause(LIVE, complement=Phrase(f"in {de}", f"in {en}")) for de, en in CITIES]
    being = [Clause(BE, complement=how) for how in predicates(STATES, degrees=2)]
    return Build(said, Build(with_subject, who, Union((1, OneOf(living)), (1, OneOf(being)))))


def two_clauses() -> Space[Both]:
    """All of the above."""
    return Union(
        (4, _reports()),
        (3, _reasons()),
        (2, _conditions()),
        (2, _contrasts()),
        (2, _described()),
        (2, _handled()),
        (2, _doers()),
    )
