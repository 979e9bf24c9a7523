"""Muon for the matrices of a model, next to AdamW for everything else."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

#: Learning rate of Muon, whose updates are a fifth of it on average, by that of Adam.
FACTOR = 2.5


def hidden_matrices(model: PreTrainedModel) -> list[nn.Parameter]:
    """Return the weights of the linear layers of a model, without that of its output, each once."""
    tables = {id(x.weight) for x in model.modules() if isinstance(x, nn.Embedding)}
    head = getattr(model.get_output_embeddings(), "weight", None)
    layers = (x for x in model.modules() if isinstance(x, nn.Linear))
    weights: dict[int, nn.Parameter] = {id(x.weight): x.weight for x in layers}  # type: ignore[misc]
    return [
        x for key, x in weights.items() if x.requires_grad and x is not head and key not in tables
    ]


def with_muon(optimizer: Optimizer, model: PreTrainedModel) -> Optimizer:
    """Hand the hidden matrices of a model over to Muon.

    Its learning rate is ``FACTOR`` times as high: so its updates are about as long as those of
    Adam, and the same learning rates suit both.

    Args:
        optimizer: Any, such as AdamW. It loses the matrices.
        model: The model of its parameters.
    """
    muon = getattr(torch.optim, "Muon", None)
    if muon is None:
        raise ValueError(f"optimizer: muon needs PyTorch 2.9; this is {torch.__version__}.")
    matrices = {id(x) for x in hidden_matrices(model)}
    groups = []
    for group in optimizer.param_groups:
        chosen = [x for x in group["params"] if id(x) in matrices]
        group["params"] = [x for x in group["params"] if id(x) not in matrices]
        if chosen:
            groups.append(
                {
                    "params": chosen,
                    "lr": FACTOR * group["lr"],
                    "weight_decay": group["weight_decay"] / FACTOR,
                }
            )
    return BothOptimizers(muon(groups, adjust_lr_fn="match_rms_adamw"), optimizer)


class BothOptimizers(Optimizer):
    """Two optimizers of different parameters as one, with one state and one list of groups.

    Groups that are added belong to the second one.
    """

    def __init__(self, first: Optimizer, second: Optimizer) -> None:
        self._parts = first, second
        self._num_first = len(first.param_groups)
        super().__init__([*first.param_groups, *second.param_groups], {})
        self.defaults = second.defaults

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters of both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first, second = self._parts
        first.param_groups = self.param_groups[: self._num_first]
        second.param_groups = self.param_groups[self._num_first :]
        for part in self._parts:
            part.state = self.state
            part.step()
        return loss
