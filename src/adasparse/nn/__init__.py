"""Modules, which own parameters and settings and contain no numerics."""

from adasparse.nn.alpha import LearnedAlpha
from adasparse.nn.attention import EntmaxAttention
from adasparse.nn.entmax import Entmax
from adasparse.nn.groups import alpha_parameters, parameter_groups
from adasparse.nn.length_scale import LengthScale, visible_keys
from adasparse.nn.losses import EntmaxLoss
from adasparse.nn.multihead import MultiheadAttention
from adasparse.nn.positions import alibi_slopes, nape_slopes
from adasparse.nn.regularizer import alpha_penalty, density_penalty

__all__ = [
    "Entmax",
    "EntmaxAttention",
    "EntmaxLoss",
    "LearnedAlpha",
    "LengthScale",
    "MultiheadAttention",
    "alibi_slopes",
    "alpha_parameters",
    "alpha_penalty",
    "density_penalty",
    "nape_slopes",
    "parameter_groups",
    "visible_keys",
]
