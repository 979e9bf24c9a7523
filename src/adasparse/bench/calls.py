"""Timed calls: forward alone, or forward and backward, of adasparse and its baselines."""

import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import adasparse

FORWARD, BOTH = "forward", "forward + backward"
#: Names of attention functions; the last two stand for ``package_attention`` and for the kernels of
#: the ``adasplash`` package.
OURS, SOFTMAX, PACKAGE = "entmax_attention", "scaled_dot_product_attention", "entmax.entmax15"
ADASPLASH = "adasplash.adasplash"
PACKAGE_MISSING = f"{PACKAGE}: not installed"
ADASPLASH_MISSING = f"{ADASPLASH}: not installed"

Call = Callable[[], object]


def forward(function: Callable[..., Tensor], *inputs: Tensor) -> Call:
    """Forward alone, without recording gradients."""

    def call() -> Tensor:
        with torch.no_grad():
            return function(*inputs)

    return call


def both(
    function: Callable[..., Tensor], *inputs: Tensor, grad: Tensor, learned: tuple[Tensor, ...] = ()
) -> Call:
    """Forward, then the gradients with respect to the inputs and the learned tensors."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    return lambda: torch.autograd.grad(function(*leaves), (*leaves, *learned), grad)


def attention(name: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the attention of that name, every argument at its default."""
    functions: dict[str, Callable[..., Tensor]] = {
        OURS: adasparse.entmax_attention,
        SOFTMAX: functional.scaled_dot_product_attention,
        PACKAGE: package_attention,
    }
    return functions[name]


def adasplash(*, alpha: float, is_causal: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the attention of the ``adasplash`` package, for GPUs."""
    function: Callable[..., Tensor] = importlib.import_module("adasplash").adasplash
    return lambda query, key, value: function(query, key, value, alpha=alpha, is_causal=is_causal)


def has_adasplash() -> bool:
    """Whether the ``adasplash`` package is there to compare with."""
    return importlib.util.find_spec("adasplash") is not None


def package_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention the way the ``entmax`` package is used: over the dense matrix of scores."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights: Tensor = package_entmax15()(scores, -1)
    return weights @ value


def package_entmax15() -> Callable[..., Any]:
    """Return ``entmax15`` of the ``entmax`` package."""
    function: Callable[..., Any] = importlib.import_module("entmax").entmax15
    return function


def has_entmax_package() -> bool:
    """Whether the ``entmax`` package is there to compare with."""
    return importlib.util.find_spec("entmax") is not None
