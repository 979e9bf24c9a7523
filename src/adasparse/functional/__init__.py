"""Functions, which check arguments, choose the backend and own the gradients."""

from adasparse.functional.attention import (
    SparseWeights,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_weights,
)
from adasparse.functional.backends import register_backend, unregister_backend
from adasparse.functional.entmax import entmax, sparsemax
from adasparse.functional.losses import entmax_loss
from adasparse.functional.packed_keys import PackedKeys
from adasparse.functional.varlen import entmax_attention_varlen

__all__ = [
    "PackedKeys",
    "SparseWeights",
    "entmax",
    "entmax_attention",
    "entmax_attention_support",
    "entmax_attention_varlen",
    "entmax_attention_weights",
    "entmax_loss",
    "register_backend",
    "sparsemax",
    "unregister_backend",
]
