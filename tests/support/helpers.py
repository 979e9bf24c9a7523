"""Data, the oracle and training in a process group."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from adasparse.kernels import cpu, reference
from support.tolerances import assert_near as assert_near

ALPHAS = [1.0, 1 + 1e-6, 1.001, 1.05, 1.5, 1.75, 2.0, 3.0]
BACKENDS = ["cpu", "torch"] if cpu.is_available() else ["torch"]


def randn(shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same in every run."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def oracle(scores: Tensor, alpha: float | Tensor) -> Tensor:
    """The float64 reference over the last dimension; alpha a number or one per row."""
    alpha = torch.as_tensor(alpha, dtype=torch.float64)
    rows = scores.double().reshape(-1, scores.shape[-1])
    return reference.entmax_forward(rows, alpha.reshape(-1)).reshape(scores.shape)


def backward_distributed(
    model: torch.nn.Module, loss_of: Callable[[torch.nn.Module], Tensor], folder: Path
) -> None:
    """Go backward twice, as a process group of this process alone."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1
    )
    try:
        wrapped = DistributedDataParallel(model)
        for _ in range(2):
            loss_of(wrapped).backward()
    finally:
        # Before the group: the last to let go of it waits for threads, and a model does so while
        # holding the interpreter's lock, which those threads may want (PyTorch 2.13).
        wrapped = None
        distributed.destroy_process_group()
