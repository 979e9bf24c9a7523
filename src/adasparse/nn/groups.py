"""Parameter groups that keep weight decay off the exponents."""

from typing import Any

from torch import nn

from adasparse.nn.alpha import LearnedAlpha
from adasparse.nn.entmax import Entmax
from adasparse.nn.losses import EntmaxLoss

_OWNERS = (LearnedAlpha, Entmax, EntmaxLoss)


def alpha_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a model that stand for an exponent, each once."""
    owners = (module for module in model.modules() if isinstance(module, _OWNERS))
    found = {id(x): x for owner in owners for x in owner.parameters(recurse=False)}
    return list(found.values())


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups for an optimizer, without weight decay for alpha.

    Decay would pull each alpha to the middle of its range, whatever the data say. Everything else
    decays, biases and norms as well. Parameters that need no gradient are excluded.

    Args:
        model: Any module; its exponents are the parameters of ``LearnedAlpha``, ``Entmax`` and
            ``EntmaxLoss`` inside.
        weight_decay: Weight decay of all other parameters.

    Returns:
        The group that decays, then that of alpha, for which a ``"lr"`` may be set as well. Empty
        groups are excluded.

    Example:
        >>> import torch
        >>> from adasparse.nn import MultiheadAttention
        >>> model = MultiheadAttention(64, 8)
        >>> optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.1), lr=1e-3)
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups]
        [(4, 0.1), (1, 0.0)]
    """
    alpha = {id(x) for x in alpha_parameters(model)}
    parameters = [x for x in model.parameters() if x.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [x for x in parameters if id(x) not in alpha], "weight_decay": weight_decay},
        {"params": [x for x in parameters if id(x) in alpha], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
