"""Deprecated: the grammar is in :mod:`adasparse.demo.grammar`."""

from adasparse._deprecated import moved_names

__getattr__ = moved_names(
    __name__,
    {
        name: f"adasparse.demo.grammar:{name}"
        for name in ("PAIRS", "GeneratedCorpus", "count_sentences", "generate")
    },
)
