"""Density of the heads of a model on some input."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adasparse.integrations.calls import AttentionCall, watching
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.huggingface.softmax import watching_weights


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadSummary:
    """The heads of one attention module.

    Args:
        alpha: ``(h,)``.
        density: ``(h,)``: which share of the keys that a query could see has a weight, over all
            queries.
    """

    alpha: Tensor
    density: Tensor


class DensityMeter:
    """Counts weights over any number of calls of attention."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {model.get_submodule(name): name for name in sparse_heads(model)}
        self.counts: dict[str, tuple[Tensor, Tensor]] = {}

    @contextmanager
    def running(self) -> Iterator["DensityMeter"]:
        """Count while the block runs."""
        with watching(self.update), watching_weights(self._update_own):
            yield self

    @torch.no_grad()
    def update(self, call: AttentionCall) -> None:
        """Count the weights of one call."""
        name = self.names.get(call.module)
        if name is None:
            return
        b, h, q, _ = call.query.shape
        used = call.support().crow.diff().reshape(b, h, q)
        visible = call.visible().expand(b, h, q, 1)
        self._add(name, used.sum((0, 2)), visible.sum((0, 2, 3)))

    @torch.no_grad()
    def _update_own(self, module: nn.Module, weights: Tensor, can_see: Tensor) -> None:
        """Count the weights of a module that attends by code of its own."""
        name = self.names.get(module)
        if name is not None:
            self._add(name, (weights != 0).sum((0, 2, 3)), can_see.sum((0, 2, 3)))

    def _add(self, name: str, used: Tensor, visible: Tensor) -> None:
        before = self.counts.get(name, (0.0, 0.0))
        self.counts[name] = (before[0] + used.double(), before[1] + visible.double())

    def density(self) -> dict[str, Tensor]:
        """Return the share of weights that are not zero ``(h,)`` in each module that ran."""
        return {name: used / visible for name, (used, visible) in self.counts.items()}


def current_alpha(model: nn.Module) -> dict[str, Tensor]:
    """Return alpha ``(h,)`` of each sparse attention module, by name."""
    found = {}
    for name, heads in sparse_heads(model).items():
        alpha = torch.as_tensor(heads.exponents()).detach()
        found[name] = alpha.float().reshape(-1).expand(heads.num_heads)
    return found


@torch.no_grad()
def inspect_heads(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, HeadSummary]:
    """Run a sparse model on ``inputs``; return alpha and density of its heads.

    No matrix of weights is built.

    Args:
        model: What ``sparsify`` changed, with or without wrappers around it.
        inputs: Keyword arguments of a forward pass.

    Returns:
        The heads of each sparse attention module, by its name.
    """
    if not isinstance(inputs, Mapping):
        raise TypeError(
            "inputs must be a dictionary of the keyword arguments of a forward pass; "
            f"got {type(inputs).__name__}."
        )
    with DensityMeter(model).running() as meter:
        model(**inputs)
    density, alpha = meter.density(), current_alpha(model)
    return {
        name: HeadSummary(alpha=alpha[name].cpu(), density=share.cpu())
        for name, share in density.items()
    }
