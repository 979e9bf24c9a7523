"""Measures of heads: from sparse weights to numbers with confidence intervals.

The functions here are called with the weights of a layer; see ``definitions``.
"""

from adasparse.analysis.measures.definitions import (
    Measure,
    Sums,
    density,
    distance,
    diversity,
    entropy,
    interrogation,
    key_weight,
    merging,
    offset_weight,
    rarity,
    split_merging,
)

__all__ = [
    "Measure",
    "Sums",
    "density",
    "distance",
    "diversity",
    "entropy",
    "interrogation",
    "key_weight",
    "merging",
    "offset_weight",
    "rarity",
    "split_merging",
]
