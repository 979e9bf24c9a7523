"""Exponents of the model in training."""

import torch
from torch import Tensor, nn

from adasparse.integrations.huggingface import measure
from adasparse.nn import LearnedAlpha


@torch.no_grad()
def current_alpha(model: nn.Module) -> dict[str, Tensor]:
    """Return alpha ``(h,)`` of each sparse attention module, by name.

    For models that ``sparsify`` changed, these are all of them; for others, the learned ones.
    """
    return measure.current_alpha(model) or {
        name.rpartition(".")[0]: module().float()
        for name, module in model.named_modules()
        if isinstance(module, LearnedAlpha)
    }
