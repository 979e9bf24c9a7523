"""Synchronous grammars: parallel sentences in two languages from one choice of meaning.

A grammar is a :class:`~adasparse.demo.grammar.spaces.Space` of meanings made from word
tables; each meaning is said once in either language. German and English are in one-to-one
correspondence; Romanian and Japanese sentences have one English translation each.
"""

from adasparse.demo.grammar.corpus import (
    PAIRS,
    GeneratedCorpus,
    count_sentences,
    generate,
)

__all__ = ["PAIRS", "GeneratedCorpus", "count_sentences", "generate"]
