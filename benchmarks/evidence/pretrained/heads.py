"""Density and α of the heads of a model of transformers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from adasparse.integrations.huggingface import inspect_heads


@torch.no_grad()
def head_densities(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return density and α of every head by module, and the mean density.

    A model with softmax attention has no sparse heads: its density is 1.
    """
    if not any(hasattr(module, "entmax") for module in model.modules()):
        return {"mean": 1.0, "modules": {}}
    found = inspect_heads(model, inputs)
    modules = {
        name: {"alpha": heads.alpha.tolist(), "density": heads.density.tolist()}
        for name, heads in found.items()
    }
    every = [x for heads in modules.values() for x in heads["density"]]
    return {"mean": sum(every) / len(every), "modules": modules}
