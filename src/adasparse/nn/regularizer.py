"""Optional loss terms that make heads sparser."""

import torch
from torch import Tensor, nn

from adasparse.nn.alpha import LearnedAlpha


def alpha_penalty(model: nn.Module, *, target: float | None = None) -> Tensor:
    """Return the mean squared distance of the exponents of a model from a target.

    The mean of ``(alpha - target)^2`` over all heads that learn theirs. Added to a loss with some
    weight it pulls every alpha; without it, nothing does. The effect on accuracy depends on the
    task.

    Args:
        model: Any module with ``LearnedAlpha`` inside.
        target: Alpha to pull to; the upper end of each range if None.

    Returns:
        A scalar with gradients.

    Example:
        >>> from adasparse.nn import EntmaxAttention
        >>> alpha_penalty(EntmaxAttention(8), target=2.0)
        tensor(0.2500, grad_fn=<MeanBackward0>)
    """
    modules = [module for module in model.modules() if isinstance(module, LearnedAlpha)]
    if not modules:
        raise ValueError(
            f"the model must contain a LearnedAlpha; got {type(model).__name__} without any."
        )
    gaps = [module() - (module.high if target is None else target) for module in modules]
    return torch.cat([gap.to(gaps[0].device) for gap in gaps]).square().mean()


def density_penalty(alpha: Tensor, density: Tensor, *, target: float | Tensor) -> Tensor:
    """Return a term whose gradient moves alpha until heads have a target density.

    The fraction of nonzero weights is a count, which has no gradient. This is a control loop
    instead: ``mean((target - density) * alpha)`` with the measured density held fixed, so that a
    step downhill raises the alpha of heads that are denser than ``target`` and lowers that of
    others. Only its gradient means something; its value is no measure of progress.

    Args:
        alpha: Exponents ``(h,)`` of a ``LearnedAlpha``.
        density: Density ``(h,)`` of each head, of the current batch or averaged over several.
        target: Density to reach, from 0 to 1.

    Returns:
        A scalar with gradients for ``alpha``.

    Example:
        >>> from adasparse.nn import EntmaxAttention
        >>> attention, x = EntmaxAttention(2), torch.randn(1, 2, 9, 4)
        >>> density = (attention.weights(x, x) > 0).float().mean((0, 2, 3))
        >>> density_penalty(attention.alpha(), density, target=0.05).backward()
        >>> attention.alpha.alpha_logit.grad < 0
        tensor([True, True])
    """
    if density.shape != alpha.shape:
        raise ValueError(
            "density must have one value per alpha; "
            f"got {tuple(density.shape)} and {tuple(alpha.shape)}."
        )
    return ((target - density.detach()) * alpha).mean()
