"""State of an optimizer and its schedule in safetensors and JSON; nothing is pickled."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_FILE, _REST = "optimizer.safetensors", "rest"


def save_optimizer(folder: str | Path, optimizer: Optimizer, schedule: LRScheduler) -> None:
    """Write the state that resuming needs beside the weights."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value.contiguous()
            else:
                numbers.setdefault(str(index), {})[name] = value
    rest = {
        "groups": state["param_groups"],
        "numbers": numbers,
        "schedule": schedule.state_dict(),
    }
    # One entry: the order of several differs each time, and so would the file.
    save_file(tensors, Path(folder) / _FILE, metadata={_REST: json.dumps(rest)})


def load_optimizer(folder: str | Path, optimizer: Optimizer, schedule: LRScheduler) -> None:
    """Restore an optimizer and its schedule as ``save_optimizer`` saved them."""
    with safe_open(Path(folder) / _FILE, framework="pt") as file:
        rest = json.loads(file.metadata()[_REST])
        state: dict[int, dict[str, Any]] = {int(k): v for k, v in rest["numbers"].items()}
        for key in file.keys():  # noqa: SIM118  # the file is no mapping
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = file.get_tensor(key)
    for group in rest["groups"]:  # JSON has no tuples
        group |= {key: tuple(x) for key, x in group.items() if key in ("betas", "ns_coefficients")}
    optimizer.load_state_dict({"state": state, "param_groups": rest["groups"]})
    schedule.load_state_dict(rest["schedule"])
