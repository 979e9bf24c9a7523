"""The backend ``torch``: PyTorch alone, for every device.

Besides the functions of ``Kernels`` it has the parts that higher derivatives are made of:
``attention_scores``, ``with_sinks``, ``weighted_values`` and ``loss_gradient`` are differentiable
any number of times, and so are ``entmax_backward`` and ``entmax_tangent``. ``entmax_unrolled`` is
for exporters.
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
from adasparse.kernels.torch.rows import entmax_backward, entmax_forward, entmax_tangent
from adasparse.kernels.torch.scores import (
    attention_scores,
    dropout_factors,
    weighted_values,
    with_sinks,
    without_autocast,
    without_sinks,
)
from adasparse.kernels.torch.unrolled import entmax_unrolled, known_alpha

__all__ = [
    "attention_backward",
    "attention_forward",
    "attention_scores",
    "attention_support",
    "dropout_factors",
    "empty_loss_saved",
    "entmax_backward",
    "entmax_forward",
    "entmax_tangent",
    "entmax_unrolled",
    "known_alpha",
    "loss_backward",
    "loss_forward",
    "loss_gradient",
    "weighted_values",
    "with_sinks",
    "without_autocast",
    "without_sinks",
]
