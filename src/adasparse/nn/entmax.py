"""The entmax operator as a module."""

from torch import Tensor, nn

from adasparse.functional import entmax


class Entmax(nn.Module):
    """Turns scores into probabilities, many of them exactly zero.

    Args:
        alpha: At least 1; a parameter is registered and learned, any other tensor is a buffer.
        dim: Dimension to normalize.

    Shape:
        Any, to the same; see ``adasparse.entmax``.

    Example:
        >>> import torch
        >>> Entmax(alpha=2.0)(torch.tensor([2.0, 0.0, 0.0]))
        tensor([1., 0., 0.])
    """

    alpha: float | Tensor

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1) -> None:
        super().__init__()
        if isinstance(alpha, Tensor) and not isinstance(alpha, nn.Parameter):
            self.register_buffer("alpha", alpha)
        else:
            self.alpha = alpha
        self.dim = dim

    def forward(self, scores: Tensor) -> Tensor:
        """Normalize ``scores`` along ``dim``."""
        return entmax(scores, self.alpha, self.dim)

    def extra_repr(self) -> str:
        """Show the settings."""
        alpha = tuple(self.alpha.shape) if isinstance(self.alpha, Tensor) else self.alpha
        return f"alpha={alpha}, dim={self.dim}"
