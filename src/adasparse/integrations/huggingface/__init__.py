"""Any model of Hugging Face transformers made adaptively sparse in one call.

Importing this package makes the Auto classes of transformers load sparse checkpoints.
"""

try:
    import transformers as _transformers  # noqa: F401  # only to tell what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "adasparse.integrations.huggingface needs transformers: pip install 'adasparse[hf]'.",
        name=error.name,
    ) from error

from adasparse.integrations.huggingface.cache import PackedCache
from adasparse.integrations.huggingface.config import SparsityConfig
from adasparse.integrations.huggingface.measure import HeadSummary, inspect_heads
from adasparse.integrations.huggingface.sparsify import SparsityReport, restore, sparsify
from adasparse.integrations.huggingface.training import (
    SparsityCallback,
    SparsityTrainerMixin,
    set_step,
)

__all__ = [
    "HeadSummary",
    "PackedCache",
    "SparsityCallback",
    "SparsityConfig",
    "SparsityReport",
    "SparsityTrainerMixin",
    "inspect_heads",
    "restore",
    "set_step",
    "sparsify",
]
