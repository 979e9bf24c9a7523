"""What the rows of a loss aim at."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Target:
    """Class indices or distributions, with what weighs and smooths them.

    The mass of class k in a row is ``weight_k ((1 - label_smoothing) q_k + label_smoothing / n)``,
    q being the distribution or 1 at the index. Rows at ``ignore_index`` have no mass.

    Args:
        index: ``(rows,)`` in int64, or None if ``probability`` is given.
        probability: ``(rows, n)`` in the dtype of the scores.
        weight: ``(n,)`` in the dtype of the scores, or None for ones.
        ignore_index: The index of rows to leave out.
        label_smoothing: Share of the mass spread evenly over the classes.
    """

    index: Tensor | None = None
    probability: Tensor | None = None
    weight: Tensor | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0

    def valid(self) -> Tensor | None:
        """Which rows count, ``(rows,)``; None if all do."""
        return None if self.index is None else self.index != self.ignore_index

    def mass(self, scores: Tensor) -> Tensor:
        """Mass of each class in each row, in the shape and dtype of ``scores``."""
        n = scores.shape[-1]
        valid = self.valid()
        if self.probability is not None:
            mass = self.probability.to(scores.dtype)
        else:
            assert self.index is not None and valid is not None
            mass = torch.zeros_like(scores).scatter(
                -1, torch.where(valid, self.index, 0).unsqueeze(-1), 1.0
            )
        mass = (1 - self.label_smoothing) * mass + self.label_smoothing / n
        if self.weight is not None:
            mass = mass * self.weight.to(scores.dtype)
        return mass if valid is None else torch.where(valid.unsqueeze(-1), mass, 0.0)
