"""Devices of the benchmarks: their names, their clocks and their peak memory."""

import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch

from adasparse import diagnostics

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def why_missing(device: str) -> str:
    """Return why a device cannot be used here, or an empty string."""
    if device == "cpu":
        return ""
    try:
        index = torch.device(device).index or 0
    except RuntimeError:
        return f"PyTorch knows no device {device!r}"
    if torch.device(device).type != "cuda":
        return f"benchmarks run on cpu or cuda; got {device!r}"
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    count = torch.cuda.device_count()
    return "" if index < count else f"PyTorch sees GPUs 0 to {count - 1}; got {device!r}"


def default_dtype(device: str) -> str:
    """Return the dtype in which a device is mostly used."""
    return "float32" if device == "cpu" else "bfloat16"


def facts(device: str) -> dict[str, Any]:
    """Return the entries of a result that name the machine: CPU, instruction set and GPU."""
    found: dict[str, Any] = {
        "cpu": diagnostics.processor()["model"],
        "isa": diagnostics.kernels()["isa"] or "plain PyTorch",
    }
    if device == "cpu":
        return found
    properties = torch.cuda.get_device_properties(device)
    return found | {
        "isa": f"Triton {_triton_version()}",
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda or torch.version.hip,
    }


def _triton_version() -> str:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return "is missing: plain PyTorch"


def seconds_per_call(function: Callable[[], object], calls: int, device: str = "cpu") -> float:
    """Seconds of one of several calls in a row; on a GPU by its own clock."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / calls


def peak_extra_bytes(function: Callable[[], object], device: str) -> int:
    """Bytes of GPU memory that a call takes at its peak, on top of those in use before it."""
    function()  # compiles and tunes
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    function()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
