"""The German-English grammar: one English sentence for each German one, and back."""

from functools import cache

from adasparse.demo.grammar.german_english.clauses import actions
from adasparse.demo.grammar.german_english.complex import two_clauses
from adasparse.demo.grammar.german_english.facts import Both, all_facts, said
from adasparse.demo.grammar.german_english.questions import all_questions
from adasparse.demo.grammar.spaces import Build, Space, Union

__all__ = ["sentences"]


@cache
def sentences() -> Space[Both]:
    """Pairs of a German sentence and its English translation."""
    return Union(
        (9, Build(_finished, Build(said, actions("first", "statement")))),
        (6, Build(_finished, all_facts())),
        (4, Build(_finished, two_clauses())),
        (4, Build(_questioned, all_questions())),
    )


def _questioned(both: Both) -> Both:
    return _finished(both, "?")


def _finished(both: Both, mark: str = ".") -> Both:
    """Both sides from capital letter to final mark; a relative clause at the end needs no comma."""
    german, english = (text.removesuffix(",") for text in both)
    return german[0].upper() + german[1:] + mark, english[0].upper() + english[1:] + mark
