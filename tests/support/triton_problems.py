"""Attention problems for the Triton kernels, and their errors against the float64 reference."""

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from adasparse.kernels import reference
from adasparse.kernels import torch as torch_kernels
from adasparse.kernels import triton as triton_kernels
from adasparse.kernels.problem import AttentionProblem
from support.triton_interpreter import patch_once_for_each_launch

#: The interpreter runs the kernels on CPU tensors.
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
if DEVICE == "cpu":
    patch_once_for_each_launch()
#: One head each: softmax, nearly so, general, and the two with maps of their own.
ALPHAS = [1.0, 1.001, 1.3, 1.5, 2.0]
#: Largest error of float32, relative to the largest number of a tensor.
TOLERANCE = 1e-5
_FIELDS = ("query", "key", "value", "alpha", "mask", "slopes", "sinks")


def make(
    b: int = 1,
    h: int = 2,
    g: int | None = None,
    q: int = 33,
    k: int = 33,
    d: int = 16,
    e: int | None = None,
    *,
    alpha: Any = 1.5,
    dtype: torch.dtype = torch.float32,
    spread: float = 2.0,
    seed: int = 0,
    **options: Any,
) -> tuple[AttentionProblem, Tensor]:
    """A problem with normal numbers, and a gradient of its output."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    g, e = g or h, e or d
    alpha = torch.as_tensor(alpha, dtype=torch.float64)
    problem = AttentionProblem(
        query=normal(b, h, q, d) * spread,
        key=normal(b, g, k, d),
        value=normal(b, g, k, e),
        alpha=alpha.reshape(1, -1, 1, 1) if alpha.dim() < 2 else alpha,
        **{"scale": d**-0.5, **options},
    )
    return problem, normal(b, h, q, e)


def packed(
    lengths_q: list[int], lengths_k: list[int], **options: Any
) -> tuple[AttentionProblem, Tensor]:
    """A packed batch with normal numbers, and a gradient of its output."""
    problem, grad = make(q=sum(lengths_q), k=sum(lengths_k), **options)
    starts_q, starts_k = (
        torch.tensor([sum(x[:i]) for i in range(len(x) + 1)], dtype=torch.int32)
        for x in (lengths_q, lengths_k)
    )
    fields = {"cu_seq_q": starts_q, "cu_seq_k": starts_k}
    fields |= {"max_q": max(lengths_q), "max_k": max(lengths_k)}
    return AttentionProblem(**{**vars(problem), **fields}), grad


def in_pages(
    problem: AttentionProblem, lengths: list[int], page_size: int = 16
) -> AttentionProblem:
    """The problem with keys and values in pages of random numbers, in random order."""
    generator = torch.Generator().manual_seed(0)
    g, d = problem.key.shape[1], problem.key.shape[3]
    pages = -(-max(lengths) // page_size)
    n = len(lengths) * pages
    key, value = (torch.randn(n, page_size, g, d, generator=generator) for _ in range(2))
    return replace(
        problem,
        key=key.transpose(1, 2),
        value=value.transpose(1, 2),
        cu_seq_k=None,
        block_table=torch.randperm(n, generator=generator).reshape(-1, pages).int(),
        key_lengths=torch.tensor(lengths),
        max_k=max(lengths),
    )


def on_device(problem: AttentionProblem) -> AttentionProblem:
    """The same problem on DEVICE; one float alpha and the seed stay in CPU memory."""
    moved = {
        name: x.to(DEVICE)
        for name, x in vars(problem).items()
        if isinstance(x, Tensor) and name != "seed" and not (name == "alpha" and x.numel() == 1)
    }
    return AttentionProblem(**{**vars(problem), **moved})


def needs_of(problem: AttentionProblem) -> frozenset[str]:
    """Everything that has a gradient."""
    is_bias = problem.mask is not None and problem.mask.is_floating_point()
    return frozenset(
        name
        for name in _FIELDS
        if getattr(problem, name) is not None and (name != "mask" or is_bias)
    )


def computed(problem: AttentionProblem, grad: Tensor) -> dict[str, Tensor]:
    """Return output and gradients of the Triton kernels, in CPU memory; unwritten memory is NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        return outcome_of(triton_kernels, on_device(problem), grad.to(DEVICE))
    finally:
        torch.use_deterministic_algorithms(False)


def outcome_of(kernels: Any, problem: AttentionProblem, grad: Tensor) -> dict[str, Tensor]:
    """Return output and gradients of some kernels, in CPU memory."""
    output, saved = kernels.attention_forward(problem, keep=True)
    needs = needs_of(problem)
    gradients = kernels.attention_backward(problem, saved, grad, needs)
    return {
        "output": output.cpu(),
        **{name: getattr(gradients, name).cpu() for name in _FIELDS if name in needs},
    }


def expected(problem: AttentionProblem, grad: Tensor) -> dict[str, Tensor]:
    """Return output and gradients of the reference."""
    output, saved = reference.attention_forward(problem, keep=True)
    gradients = reference.attention_backward(problem, saved, grad)
    return {
        "output": output,
        **{name: getattr(gradients, name) for name in _FIELDS if name in needs_of(problem)},
    }


def assert_agrees(
    problem: AttentionProblem,
    grad: Tensor,
    *,
    tolerance: float = TOLERANCE,
    floor: float = 3e-6,
    is_steep: bool = False,
) -> dict[str, Tensor]:
    """Compare everything with the reference; relative to the largest number of each tensor.

    Args:
        problem: The call.
        grad: Gradient of its output.
        tolerance: Error allowed, relative to the largest number.
        floor: Added to it, for tensors that are nearly zero: gradients of scores are differences of
            products of about 10, whose last digits differ between processors.
        is_steep: Whether twice the error of plain PyTorch is allowed as well: for alpha between 1.5
            and 2, a score within a rounding of the edge of the support has a large gradient.
    """
    found, exact = computed(problem, grad), expected(problem, grad)
    plain = outcome_of(torch_kernels, problem, grad) if is_steep else {}
    for name, wanted in exact.items():
        assert found[name].shape == wanted.shape, name
        error = (found[name].double() - wanted).abs().max()
        allowed = tolerance * wanted.abs().max() + floor
        if is_steep:
            allowed = max(allowed, 2 * (plain[name].double() - wanted).abs().max())
        assert error <= allowed, (name, float(error), float(allowed))
    return found
