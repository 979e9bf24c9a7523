"""Diagnostics of the installation and the machine, with a self check of the kernels."""

import os
import platform
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import adasparse
from adasparse.functional.backends import explain_choice
from adasparse.kernels import cpu, reference

#: Packages of the optional extras.
EXTRAS = (
    "accelerate",
    "entmax",
    "matplotlib",
    "sacrebleu",
    "safetensors",
    "tokenizers",
    "transformers",
    "triton",
)
#: Processor features that matter here, of x86 and of Arm.
FEATURES = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "bmi2"),
    *("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_bf16"),
    *("asimd", "asimdhp", "bf16", "sve", "sve2"),
)

CHECKED_ALPHAS = (1.0, 1.001, 1.5, 1.75, 2.0)
#: Largest errors of float32 that pass the self check: of weights, and of gradients.
WEIGHT_TOLERANCE, GRADIENT_TOLERANCE = 1e-6, 1e-4


def versions() -> dict[str, str]:
    """Versions of adasparse and its dependencies."""
    return {
        "adasparse": metadata.version("adasparse"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": metadata.version("numpy"),
        "os": platform.platform(),
    }


def processor() -> dict[str, Any]:
    """Model, cores and features of the CPU."""
    facts = _cpuinfo()
    model = facts.get("model name") or platform.processor() or platform.machine()
    if sys.platform == "darwin":
        model = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        ).stdout.strip()
    flags = facts.get("flags", facts.get("Features", "")).split()
    return {
        "model": model,
        "cores": os.cpu_count(),
        "features": [feature for feature in FEATURES if feature in flags],
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _cpuinfo() -> dict[str, str]:
    """The first processor of Linux's list; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    lines = path.read_text().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def kernels() -> dict[str, Any]:
    """The compiled kernels, or why there are none."""
    return {
        "available": cpu.is_available(),
        "missing_reason": cpu.missing_reason,
        "isa": cpu.isa(),
        "isas": cpu.available_isas(),
        "isa_override": os.environ.get("ADASPARSE_ISA"),
        "openmp": cpu.has_openmp(),
    }


def backends() -> dict[str, dict[str, str]]:
    """The backend in use on each kind of device, and the reason."""
    return {
        "cpu": _backend("cpu"),
        "cuda": _backend("cuda"),
        "other": _backend("mps"),
    }


def _backend(device: str) -> dict[str, str]:
    name, against = explain_choice(device)
    if name == "cpu":
        override = os.environ.get("ADASPARSE_ISA")
        why = f"ADASPARSE_ISA={override} asks for it" if override else "the best set this CPU runs"
        reason = f"compiled kernels, {cpu.isa()}: {why}"
    elif missing := {x: why for x, why in against.items() if "it needs tensors on" not in why}:
        reason = "; ".join(f"{x}: {why}" for x, why in missing.items())
    else:
        reason = "no other backend supports this device"
    return {"backend": name, "reason": reason}


def accelerators() -> list[str]:
    """Devices besides the CPU that torch can use now."""
    found = [f"cuda: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    return found + (["mps"] if torch.backends.mps.is_available() else [])


def extras() -> dict[str, str | None]:
    """Version of each optional package, or None; none of them is imported."""
    return {name: _version_or_none(name) for name in EXTRAS}


def _version_or_none(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def self_check() -> dict[str, Any]:
    """Run entmax and its gradients at a few alphas against the float64 reference.

    Returns:
        The largest absolute error of the weights, the largest error of the gradients (relative to
        the largest gradient), and whether both are within the tolerances.
    """
    generator = torch.Generator().manual_seed(0)
    # Rows enough for two threads, of which the slow reference does some: few enough for one.
    scores, grad = (torch.randn(500, 65, generator=generator) for _ in range(2))
    scores.requires_grad_()
    some = slice(None, None, 20)
    weight_errors, gradient_errors = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for value in CHECKED_ALPHAS:
            exact = torch.tensor(value, dtype=torch.float64)
            alpha = exact.expand(500, 1).clone().requires_grad_()
            weights = adasparse.entmax(scores, alpha)
            by_scores, by_alpha = torch.autograd.grad(weights, (scores, alpha), grad)
            checked = weights.detach()[some].double()
            expected = reference.entmax_forward(scores.detach()[some].double(), exact)
            expected_by_scores, expected_by_alpha = reference.entmax_backward(
                checked, grad[some].double(), exact, with_alpha=True
            )
            assert expected_by_alpha is not None
            weight_errors.append((checked - expected).abs().max().item())
            gradient_errors += [
                _relative_error(by_scores[some], expected_by_scores),
                _relative_error(by_alpha[some].squeeze(-1), expected_by_alpha),
            ]
    # NaN passes no comparison, so it counts as a failure.
    is_fine = all(error <= WEIGHT_TOLERANCE for error in weight_errors) and all(
        error <= GRADIENT_TOLERANCE for error in gradient_errors
    )
    return {
        "ok": is_fine,
        "weight_error": max(weight_errors),
        "gradient_error": max(gradient_errors),
        "alphas": list(CHECKED_ALPHAS),
    }


def _relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()
