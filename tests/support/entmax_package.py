"""Comparison with the ``entmax`` package."""

import torch

from support import helpers
from support.tolerances import ENTMAX_PACKAGE as NEAR

__all__ = ["NEAR", "randn", "value_and_gradients"]


def randn(*shape, dtype=torch.float64, scale=1.0, seed=0):
    return scale * helpers.randn(shape, dtype=dtype, seed=seed)


def value_and_gradients(function, scores, *others):
    """Return the value, and a random cotangent pulled back to what requires a gradient."""
    inputs = [scores.detach().clone().requires_grad_()]
    inputs += [x.detach().clone().requires_grad_(x.requires_grad) for x in others]
    value = function(*inputs)
    value.backward(randn(*value.shape, dtype=value.dtype, seed=1))
    return [value.detach(), *(x.grad for x in inputs if x.requires_grad)]
