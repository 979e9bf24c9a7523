"""Exported programs run in onnxruntime."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

#: Largest difference between onnxruntime and PyTorch.
BAR = 1e-5


def session_of(program: Any) -> Callable[..., Tensor]:
    """Return a function that runs the program in onnxruntime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [x.name for x in session.get_inputs()]

    def run(*inputs: Tensor) -> Tensor:
        given = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return run
