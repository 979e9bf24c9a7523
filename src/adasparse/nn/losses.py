"""The entmax loss as a module."""

from torch import Tensor, nn

from adasparse.functional import entmax_loss


class EntmaxLoss(nn.Module):
    """Fenchel-Young loss of entmax; cross entropy at alpha = 1.

    Args:
        alpha: At least 1; a parameter is registered and learned, any other tensor is a buffer.
        ignore_index: Target of rows that are ignored.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Fraction of the target, from 0 to 1, that is spread over all classes.
        weight: Weight of each class, ``(c,)``.

    Shape:
        As for ``adasparse.entmax_loss``: scores ``(b, c, ...)``, target ``(b, ...)`` or
        ``(b, c, ...)``.

    Example:
        >>> import torch
        >>> EntmaxLoss(alpha=2.0)(torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.)
    """

    alpha: float | Tensor
    weight: Tensor | None

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        if isinstance(alpha, Tensor) and not isinstance(alpha, nn.Parameter):
            self.register_buffer("alpha", alpha)
        else:
            self.alpha = alpha
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.register_buffer("weight", weight)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``scores`` against ``target``."""
        return entmax_loss(
            scores,
            target,
            self.alpha,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            weight=self.weight,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        alpha = tuple(self.alpha.shape) if isinstance(self.alpha, Tensor) else self.alpha
        return f"alpha={alpha}, ignore_index={self.ignore_index}, reduction={self.reduction!r}"
