"""Adaptively sparse attention: entmax operators, losses and attention that skip the zeros."""

from importlib.metadata import version

from adasparse import nn
from adasparse.compat.entmax import sparsemax
from adasparse.functional.entmax import entmax
from adasparse.functional.losses import entmax_loss

__version__ = version("adasparse")

__all__ = ["entmax", "entmax_loss", "nn", "sparsemax"]
