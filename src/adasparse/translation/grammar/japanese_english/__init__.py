"""The Japanese-English grammar: counters, particles, the verb at the end, prices, times, dates."""

from functools import cache

from adasparse.translation.grammar.japanese_english.actions import (
    Both,
    reports,
    statements,
    travels,
)
from adasparse.translation.grammar.japanese_english.facts import all_facts, prices
from adasparse.translation.grammar.japanese_english.questions import all_questions
from adasparse.translation.grammar.spaces import Build, Space, Union

__all__ = ["sentences"]


@cache
def sentences() -> Space[Both]:
    """Pairs of a Japanese sentence, without spaces, and its English translation."""
    texts = Union(
        (5, statements()),
        (2, all_questions()),
        (1, travels()),
        (1, reports()),
        (2, prices()),
        (2, all_facts()),
    )
    return Build(lambda both: (both[0], both[1][0].upper() + both[1][1:]), texts)
