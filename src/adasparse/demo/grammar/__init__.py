"""A synchronous grammar: parallel German and English sentences from one choice of meaning.

The grammar is a :class:`~adasparse.demo.grammar.spaces.Space` of meanings made from word
tables; each meaning is said once in either language, so that sentences correspond one to one.
"""

from adasparse.demo.grammar.corpus import (
    PAIRS,
    GeneratedCorpus,
    count_sentences,
    generate,
)

__all__ = ["PAIRS", "GeneratedCorpus", "count_sentences", "generate"]
