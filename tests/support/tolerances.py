"""The one table of tolerances, by dtype; the same on every machine."""

import torch
from torch import Tensor

#: Largest absolute error allowed in a probability.
PROBABILITY = {torch.float64: 1e-11, torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
#: Largest error allowed in attention and its gradients, relative to the largest number of a tensor.
ATTENTION = {torch.float64: 1e-9, torch.float32: 2e-5}
#: Most that rounded scores may add to it, in multiples of the tolerance of the largest tensor; the
#: tests need 4.
MAX_SLACK = 20.0
#: Largest absolute and relative difference from the ``entmax`` package, which bisects in steps.
ENTMAX_PACKAGE = {"atol": 1e-5, "rtol": 1e-5}
#: Largest relative error of the outputs of whole models.
MODEL = 1e-5


def assert_near(actual: Tensor, expected: Tensor, *, scale: float = 1.0) -> None:
    """Compare probabilities within the tolerance of the dtype of ``actual``, times ``scale``."""
    assert actual.shape == expected.shape
    assert torch.equal(actual.isnan(), expected.isnan())
    error = (actual.double() - expected.double()).nan_to_num().abs().max().item()
    assert error <= PROBABILITY[actual.dtype] * scale, f"error {error:.2e}"
