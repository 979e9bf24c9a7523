"""Deprecated: use :mod:`adasparse.analysis.figures`."""

from adasparse._deprecated import moved_names
from adasparse.analysis import figures

__getattr__ = moved_names(
    __name__, {name: f"adasparse.analysis.figures:{name}" for name in figures.__all__}
)
