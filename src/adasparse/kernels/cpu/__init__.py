"""The backend ``cpu``: the compiled C++ core, for CPU tensors."""

from adasparse.kernels.cpu.attention import (
    SavedSupport,
    SavedWeights,
    attention_only_scores,
    attention_rescored,
    attention_support,
)
from adasparse.kernels.cpu.losses import SavedLoss, empty_loss_saved, loss_backward, loss_forward
from adasparse.kernels.cpu.native import (
    available_isas,
    has_int8_products,
    has_openmp,
    is_available,
    isa,
    missing_reason,
    screening,
    use_isa,
    use_screening,
)
from adasparse.kernels.cpu.packed import SavedPacked, attention_backward, attention_forward
from adasparse.kernels.cpu.rows import entmax_backward, entmax_forward

#: Attention in bfloat16 and float16 is read and written as it is.
accepts_half_precision = True

__all__ = [
    "SavedLoss",
    "SavedPacked",
    "SavedSupport",
    "SavedWeights",
    "accepts_half_precision",
    "attention_backward",
    "attention_forward",
    "attention_only_scores",
    "attention_rescored",
    "attention_support",
    "available_isas",
    "empty_loss_saved",
    "entmax_backward",
    "entmax_forward",
    "has_int8_products",
    "has_openmp",
    "is_available",
    "isa",
    "loss_backward",
    "loss_forward",
    "missing_reason",
    "screening",
    "use_isa",
    "use_screening",
]
