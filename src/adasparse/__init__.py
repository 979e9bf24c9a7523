"""Adaptively sparse attention: entmax operators, losses and attention that skip the zeros."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from adasparse import _command as _command  # first: it speaks while the rest loads
from adasparse import nn
from adasparse.functional import (
    PackedKeys,
    SparseWeights,
    entmax,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_varlen,
    entmax_attention_weights,
    entmax_loss,
    sparsemax,
)

if TYPE_CHECKING:
    from adasparse.integrations.huggingface.config import SparsityConfig as SparsityConfig
    from adasparse.integrations.huggingface.sparsify import restore as restore
    from adasparse.integrations.huggingface.sparsify import sparsify as sparsify

__version__ = version("adasparse")

#: Names that need an extra, and where they are. Not in ``__all__``: ``import *`` would load them.
_LAZY = dict.fromkeys(
    ("SparsityConfig", "restore", "sparsify"), "adasparse.integrations.huggingface"
)

__all__ = [
    "PackedKeys",
    "SparseWeights",
    "entmax",
    "entmax_attention",
    "entmax_attention_support",
    "entmax_attention_varlen",
    "entmax_attention_weights",
    "entmax_loss",
    "nn",
    "sparsemax",
]


def __getattr__(name: str) -> Any:
    """Load names that need an extra when they are first used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'adasparse' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
