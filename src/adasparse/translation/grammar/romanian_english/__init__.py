"""The Romanian-English grammar: gender and number, *de* after twenty, verbs, prices, times."""

from functools import cache

from adasparse.translation.grammar.romanian_english.actions import Both, deeds, reports
from adasparse.translation.grammar.romanian_english.facts import all_facts
from adasparse.translation.grammar.spaces import Build, OneOf, Space, Union

__all__ = ["sentences"]


@cache
def sentences() -> Space[Both]:
    """Pairs of a Romanian sentence and its English translation."""
    statements = Build(lambda deed: (deed.romanian(), deed.english()), deeds(can_negate=True))
    questions = Build(
        lambda deed: (deed.romanian(), deed.english(is_question=True)), deeds(can_negate=False)
    )
    return Union(
        (5, Build(_finished, statements, OneOf(["."]))),
        (4, Build(_finished, all_facts(), OneOf(["."]))),
        (1, Build(_finished, reports(), OneOf(["."]))),
        (1, Build(_finished, questions, OneOf(["?"]))),
    )


def _finished(both: Both, mark: str) -> Both:
    romanian, english_text = both
    return (
        romanian[0].upper() + romanian[1:] + mark,
        english_text[0].upper() + english_text[1:] + mark,
    )
