"""Modules: they own parameters and settings, and contain no numerics."""

from adasparse.nn.entmax import Entmax
from adasparse.nn.losses import EntmaxLoss

__all__ = ["Entmax", "EntmaxLoss"]
