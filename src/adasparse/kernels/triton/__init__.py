"""Triton kernels for GPUs, and for the CPU under Triton's interpreter.

Importing this package does not import Triton; ``is_available`` says whether that would work.
``TRITON_INTERPRET=1`` in the environment, set before Triton is imported, runs the kernels on CPU
tensors, slowly, to check results without a GPU.
"""

import importlib
import importlib.util
import os
import re
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from adasparse.kernels.problem import AttentionProblem, LossProblem

#: Why the kernels cannot run here, or an empty string: ``why_missing()``, looked up anew each time.
missing_reason: str
#: Whether Triton is installed, the oldest version that compiles the kernels, and whether its
#: interpreter is asked for.
_IS_INSTALLED = importlib.util.find_spec("triton") is not None
MIN_TRITON = (3, 5)
_IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: Attention reads half precision as it is.
accepts_half_precision = True
#: Largest size of a head; the tiles of larger ones do not fit.
MAX_HEAD_DIM = 256
#: Oldest generation of NVIDIA GPUs, that of the A100.
_MIN_CAPABILITY = 8
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_MODULES = {
    "attention_backward": "attention",
    "attention_forward": "attention",
    "attention_support": "support",
    "empty_loss_saved": "losses",
    "entmax_backward": "rows",
    "entmax_forward": "rows",
    "loss_backward": "losses",
    "loss_forward": "losses",
}

__all__ = [
    "accepts_half_precision",
    "attention_backward",
    "attention_forward",
    "attention_support",
    "devices",
    "empty_loss_saved",
    "entmax_backward",
    "entmax_forward",
    "is_available",
    "loss_backward",
    "loss_forward",
    "missing_reason",
    "unsupported",
    "why_missing",
]


def __getattr__(name: str) -> Any:
    """Import a kernel, and Triton with it, when it is first asked for."""
    if name == "missing_reason":
        return why_missing()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)


def devices() -> tuple[str, ...]:
    """Types of devices whose tensors the kernels accept; those of ROCm are called cuda, too."""
    return ("cpu", "cuda") if _IS_INTERPRETED else ("cuda",)


def why_missing() -> str:
    """Return why the kernels cannot run here, or an empty string."""
    if not _IS_INSTALLED:
        return "Triton is not installed; pip install 'adasparse[gpu]'"
    if _OLD_VERSION:
        least = ".".join(map(str, MIN_TRITON))
        return f"the kernels need Triton {least} or later; got {_OLD_VERSION}"
    if not _IS_INTERPRETED and not torch.cuda.is_available():
        return "PyTorch sees no GPU; TRITON_INTERPRET=1 runs the kernels on the CPU, slowly"
    return ""


def _old_version() -> str:
    """Version of Triton if it is too old, else an empty string; Triton is not imported.

    PyTorch brings a Triton of its own, so an older PyTorch has an older one. Its distribution has
    other names for AMD: one that is not found counts as new.
    """
    for name in ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        numbers = tuple(int(x) for x in re.findall(r"\d+", version)[:2])
        return version if numbers < MIN_TRITON else ""
    return ""


#: Looked up once: torch.compile would trace the lookup, and warn of a cached function.
_OLD_VERSION = _old_version() if _IS_INSTALLED else ""


def is_available() -> bool:
    """Whether Triton is installed and has a GPU, or its interpreter, to run on."""
    return not why_missing()


def _unsupported_alpha(alpha: Tensor) -> str | None:
    """Reason from the values of an alpha in CPU memory; others cannot be looked at."""
    is_readable = alpha.device.type == "cpu" and not torch.compiler.is_compiling()
    if not is_readable or type(alpha) not in (Tensor, torch.nn.Parameter) or not alpha.numel():
        return None
    low, high = alpha.min().item(), alpha.max().item()
    if low >= 1 and high <= 2:
        return None
    return f"the Triton kernels take alpha from 1 to 2; got {low if low < 1 else high}"


def _unsupported_dtype(x: Tensor) -> str | None:
    if x.dtype in _DTYPES:
        return None
    return f"the Triton kernels compute in float16, bfloat16 or float32; got {x.dtype}"


def _unsupported_device(x: Tensor) -> str | None:
    """Reason from the generation of an NVIDIA GPU; Triton compiles for 8.0 and later."""
    if x.device.type != "cuda" or torch.version.hip is not None or not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(x.device)
    if properties.major >= _MIN_CAPABILITY:
        return None
    found = f"{properties.major}.{properties.minor}"
    return f"the Triton kernels need compute capability {_MIN_CAPABILITY}.0 or later; got {found}"


def _unsupported_attention(problem: AttentionProblem) -> str | None:
    sizes = (problem.query.shape[-1], problem.value.shape[-1])
    if max(sizes) > MAX_HEAD_DIM or min(sizes) < 1:
        return f"the Triton kernels take head sizes from 1 to {MAX_HEAD_DIM}; got {max(sizes)}"
    dtypes = {x.dtype for x in (problem.query, problem.key, problem.value)}
    if len(dtypes) > 1:
        return "query, key and value must share a dtype in the Triton kernels; got " + ", ".join(
            sorted(map(str, dtypes))
        )
    return None


def unsupported(problem: AttentionProblem | LossProblem | Tensor) -> str | None:
    """Reason why the kernels cannot take a problem or the scores of ``entmax``, or None.

    Reads no tensor on a device, and launches nothing.
    """
    if isinstance(problem, Tensor):
        return _unsupported_device(problem) or _unsupported_dtype(problem)
    scores = problem.scores if isinstance(problem, LossProblem) else problem.query
    reason = _unsupported_device(scores) or _unsupported_dtype(scores)
    if isinstance(problem, AttentionProblem):
        reason = reason or _unsupported_attention(problem)
    return reason or _unsupported_alpha(problem.alpha)
