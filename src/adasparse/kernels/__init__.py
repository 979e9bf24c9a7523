"""Kernels, which compute and choose nothing.

Every backend is a module with the functions of ``Kernels``:

- ``reference`` is the slow float64 oracle of the tests;
- ``torch`` is PyTorch alone, for any device, and differentiable any number of times;
- ``cpu`` calls the compiled C++ core;
- ``triton`` runs on GPUs.

``adasparse.functional.backends`` chooses among them. To add one, write a module with these
functions and register it there. A module with ``accepts_half_precision = True`` gets attention in
half precision as it is; the others get float32.

``cpu`` and ``triton`` also have ``is_available()`` and ``missing_reason``; ``triton`` may have
``unsupported(problem)``, which returns what it does not support in an attention problem, or None.
"""

from typing import Any, Protocol

from torch import Tensor

from adasparse.kernels.problem import (
    AttentionGradients,
    AttentionProblem,
    LossProblem,
    SparseRows,
)


class RowKernels(Protocol):
    """entmax of rows: ``(rows, n)``, contiguous; alpha in float64, one value or ``(rows,)``."""

    def entmax_forward(self, scores: Tensor, alpha: Tensor) -> Tensor:
        """Return the weights ``(rows, n)`` in the dtype of ``scores``.

        ``-inf`` marks a masked entry. Fully masked rows are zero; NaN or ``+inf`` makes its row
        NaN.
        """

    def entmax_backward(
        self, weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients with respect to scores and to the alpha of each row, float64."""


class LossKernels(Protocol):
    """Fenchel-Young losses of rows."""

    def loss_forward(self, problem: LossProblem) -> tuple[Tensor, Any]:
        """Return the loss of each row ``(rows,)`` in float64, and what is saved for backward.

        ``saved`` is a frozen dataclass whose fields are tensors, here and in attention; autograd
        stores them by field name.
        """

    def loss_backward(
        self, problem: LossProblem, saved: Any, grad: Tensor, *, with_alpha: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients with respect to scores and to the alpha of each row, float64.

        ``grad`` is ``(rows,)`` in float64.
        """

    def empty_loss_saved(self, problem: LossProblem) -> Any:
        """Return uninitialized tensors in the form that ``loss_forward`` saves.

        Allocates only, so that ``torch.compile`` can infer shapes; no values are read.
        """


class AttentionKernels(Protocol):
    """Attention; the problem is converted, as ``AttentionProblem`` says."""

    def attention_forward(
        self, problem: AttentionProblem, *, keep: bool
    ) -> tuple[Tensor, Any | None]:
        """Return the output ``(b, h, q, e)`` and, if ``keep``, what is saved for backward."""

    def attention_backward(
        self, problem: AttentionProblem, saved: Any, grad: Tensor, needs: frozenset[str]
    ) -> AttentionGradients:
        """Return the gradients with respect to the fields named in ``needs``, at least.

        ``grad`` has the shape of the output, the compute dtype and a contiguous last dimension.
        """

    def attention_support(self, problem: AttentionProblem) -> SparseRows:
        """Return the nonzero weights, before dropout; of a batch that is not packed."""


class Kernels(RowKernels, LossKernels, AttentionKernels, Protocol):
    """All functions of a backend."""


__all__ = [
    "AttentionGradients",
    "AttentionKernels",
    "AttentionProblem",
    "Kernels",
    "LossKernels",
    "LossProblem",
    "RowKernels",
    "SparseRows",
]
