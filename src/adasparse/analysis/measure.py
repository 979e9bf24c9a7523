"""Deprecated: use :mod:`adasparse.analysis.measures`."""

from adasparse._deprecated import moved_names
from adasparse.analysis import measures

__getattr__ = moved_names(
    __name__, {name: f"adasparse.analysis.measures:{name}" for name in measures.__all__}
)
