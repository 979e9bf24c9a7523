"""The backend ``torch``: PyTorch alone, for every device.

Besides the functions of ``Kernels`` it has the parts that higher derivatives are made of:
``attention_scores``, ``weighted_values`` and ``loss_gradient`` are differentiable any number of
times, and so is ``entmax_backward``.
"""

from adasparse.kernels.torch.attention import (
    attention_backward,
    attention_forward,
    attention_support,
)
from adasparse.kernels.torch.losses import (
    empty_loss_saved,
    loss_backward,
    loss_forward,
    loss_gradient,
)
from adasparse.kernels.torch.rows import entmax_backward, entmax_forward
from adasparse.kernels.torch.scores import (
    attention_scores,
    dropout_factors,
    weighted_values,
    without_autocast,
)

__all__ = [
    "attention_backward",
    "attention_forward",
    "attention_scores",
    "attention_support",
    "dropout_factors",
    "empty_loss_saved",
    "entmax_backward",
    "entmax_forward",
    "loss_backward",
    "loss_forward",
    "loss_gradient",
    "weighted_values",
    "without_autocast",
]
