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
from adasparse.kernels import AttentionProblem, cpu, reference
from adasparse.kernels import triton as triton_kernels

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
#: Largest errors of float32 that pass the self check: of weights, of gradients, and of attention.
WEIGHT_TOLERANCE, GRADIENT_TOLERANCE, ATTENTION_TOLERANCE = 1e-6, 1e-4, 1e-5


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
    elif not any(x.isdigit() for x in model) and "cpu family" in facts:
        # A virtual machine may hide which processor of a maker it has, but not the family.
        model = f"{model} family {facts['cpu family']}"
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
        "int8": cpu.has_int8_products(),
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


def gpus() -> list[dict[str, Any]]:
    """Name, architecture, memory and runtime of each GPU that PyTorch sees."""
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        found.append(
            {
                "device": f"cuda:{index}",
                "name": properties.name,
                "architecture": getattr(properties, "gcnArchName", None)
                or f"sm_{properties.major}{properties.minor}",
                "memory_gib": round(properties.total_memory / 2**30, 1),
                "runtime": runtime,
            }
        )
    return found


def triton() -> dict[str, Any]:
    """The Triton kernels, or why they cannot run here."""
    return {
        "version": _version_or_none("triton"),
        "available": triton_kernels.is_available(),
        "missing_reason": triton_kernels.why_missing(),
        "interpreted": "cpu" in triton_kernels.devices(),
    }


def extras() -> dict[str, str | None]:
    """Version of each optional package, or None; none of them is imported."""
    return {name: _version_or_none(name) for name in EXTRAS}


def _version_or_none(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def gpu_checks() -> list[dict[str, Any]]:
    """Run the self check on each GPU, or in Triton's interpreter if that is asked for.

    Returns:
        For each device what ``self_check`` returns, errors of attention included, and ``device``
        and ``backend``. A device that cannot run the check has ``ok`` False and an ``error``.
    """
    places = [(f"cuda:{index}", "auto") for index in range(torch.cuda.device_count())]
    if triton()["interpreted"] and triton_kernels.is_available():
        places.append(("cpu", "triton"))
    found = []
    for device, backend in places:
        named = {"device": device, "backend": backend}
        if backend == "auto":
            named["backend"] = explain_choice("cuda")[0]
        try:
            checked = self_check(device=device, backend=backend, rows=32)
            attention = _check_attention(device, backend)
            checked |= {**attention, "ok": checked["ok"] and attention["ok"]}
        except Exception as error:
            # A compiler or driver that fails is what this check is for.
            message = str(error).strip().splitlines() or [""]
            checked = {"ok": False, "error": f"{type(error).__name__}: {message[0]}"}
        found.append(named | checked)
    return found


def _check_attention(device: str, backend: str) -> dict[str, Any]:
    """Compare attention and its gradients, one alpha per head, with the reference."""
    generator = torch.Generator().manual_seed(1)
    heads = len(CHECKED_ALPHAS)
    query, key, value, grad = (
        torch.randn(1, heads, n, 16, generator=generator) for n in (33, 65, 65, 33)
    )
    alpha = torch.tensor(CHECKED_ALPHAS, dtype=torch.float64)
    leaves = [x.to(device).requires_grad_() for x in (query, key, value, alpha)]
    matmul = torch.backends.cuda.matmul
    # The older switch raises an error where the newer one was set.
    is_new = hasattr(matmul, "fp32_precision")
    switch, off = ("fp32_precision", "ieee") if is_new else ("allow_tf32", False)
    before = getattr(matmul, switch)
    setattr(matmul, switch, off)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            output = adasparse.entmax_attention(
                *leaves[:3], alpha=leaves[3], is_causal=True, backend=backend
            )
            found = torch.autograd.grad(output, leaves, grad.to(device))
    finally:
        setattr(matmul, switch, before)
    problem = AttentionProblem(
        query=query,
        key=key,
        value=value,
        alpha=alpha.reshape(1, -1, 1, 1),
        scale=0.25,
        is_causal=True,
    )
    wanted, saved = reference.attention_forward(problem, keep=True)
    assert saved is not None
    by = reference.attention_backward(problem, saved, grad)
    expected = (by.query, by.key, by.value, by.alpha)
    error = _relative_error(output.detach().cpu(), wanted)
    gradient_error = max(
        _relative_error(a.cpu().reshape(b.shape), b)
        for a, b in zip(found, expected, strict=True)
        if b is not None
    )
    return {
        "ok": error <= ATTENTION_TOLERANCE and gradient_error <= GRADIENT_TOLERANCE,
        "attention_error": error,
        "attention_gradient_error": gradient_error,
    }


def self_check(*, device: str = "cpu", backend: str = "auto", rows: int = 500) -> dict[str, Any]:
    """Run entmax and its gradients at a few alphas against the float64 reference.

    Args:
        device: Where the scores are.
        backend: Kernels to use.
        rows: Number of rows, of which the reference does some; the usual number is enough for two
            threads of the CPU.

    Returns:
        The largest absolute error of the weights, the largest error of the gradients (relative to
        the largest gradient), and whether both are within the tolerances.
    """
    generator = torch.Generator().manual_seed(0)
    scores, grad = (torch.randn(rows, 65, generator=generator).to(device) for _ in range(2))
    scores.requires_grad_()
    some = slice(None, None, 20)
    weight_errors, gradient_errors = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for value in CHECKED_ALPHAS:
            exact = torch.tensor(value, dtype=torch.float64)
            alpha = exact.expand(rows, 1).to(device).clone().requires_grad_()
            weights = adasparse.entmax(scores, alpha, backend=backend)
            by_scores, by_alpha = (
                x.cpu() for x in torch.autograd.grad(weights, (scores, alpha), grad)
            )
            checked = weights.detach()[some].cpu().double()
            expected = reference.entmax_forward(scores.detach()[some].cpu().double(), exact)
            expected_by_scores, expected_by_alpha = reference.entmax_backward(
                checked, grad[some].cpu().double(), exact, with_alpha=True
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
