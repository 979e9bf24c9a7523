"""Questions in Japanese and English: yes or no, what, how many, how much."""

from adasparse.translation.grammar import english
from adasparse.translation.grammar.japanese_english.actions import (
    ASKED,
    BEFORE,
    ENDINGS,
    Both,
    Deed,
    Ending,
    Thing,
    adjectives,
    deeds,
    fixed,
)
from adasparse.translation.grammar.japanese_english.facts import COST, PRICED
from adasparse.translation.grammar.japanese_english.words import (
    COUNTERS,
    NOUNS,
    PEOPLE,
    VERBS,
    Adjective,
    Noun,
    Person,
)
from adasparse.translation.grammar.meaning import (
    Clause,
)
from adasparse.translation.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["all_questions"]


def all_questions() -> Space[Both]:
    """Yes or no; *what*; *how many*; *how much*."""
    people = tuple(person for person in PEOPLE if person.ja not in ("私", "母", "父"))
    past = ENDINGS[:1]
    whole = Build(
        lambda deed: (deed.japanese() + "か。", english.question(deed.clause()) + "?"),
        deeds(ASKED, people),
    )
    what = Build(
        lambda deed: (
            deed.japanese(what="何を") + "か。",
            english.question(deed.clause(), opener="what") + "?",
        ),
        deeds(ASKED, people, has_thing=False),
    )
    prices = Build(
        lambda thing: (
            f"{thing.japanese('は')}いくらですか。",
            english.question(Clause(COST, thing.english()), opener="how much") + "?",
        ),
        Union(*((1, fixed(noun)) for kind in PRICED for noun in NOUNS[kind])),
    )
    return Union((3, whole), (1, what), (2, _how_many(past, people)), (1, prices))


def _how_many(endings: tuple[Ending, ...], people: tuple[Person, ...]) -> Space[Both]:
    """Ask for a number: *花子さんは本を何冊読みましたか*."""

    def ask(noun: Noun, adjective: Adjective | None, deed: Deed) -> Both:
        before = adjective.before if adjective else ""
        what = f"{before}{noun.ja}を何{COUNTERS[noun.kind]}"
        opener = f"how many {adjective.en + ' ' if adjective else ''}{noun.en_plural}"
        return (
            deed.japanese(what=what) + "か。",
            english.question(deed.clause(), opener=opener) + "?",
        )

    spaces = []
    for verb in VERBS:
        for noun in (noun for kind in verb.kinds for noun in NOUNS[kind]):
            nothing: Space[Thing | None] = OneOf([None])
            parts = OneOf(people), OneOf([verb]), nothing, OneOf([("", "")]), OneOf(endings)
            deeds = Build(Deed, *parts, OneOf(BEFORE))
            spaces.append((1, Build(ask, OneOf([noun]), adjectives(noun), deeds)))
    return Union(*spaces)
