"""Arguments that attention takes in any layout, padded or packed: checks and defaults."""

import math

import torch
from torch import Tensor

from adasparse.functional.arguments import DTYPES, check_dense
from adasparse.functional.packed_keys import PackedKeys

_ABOUT_NESTED = (
    " For nested tensors (n, tokens, h, d), pass their values() and offsets() to "
    "entmax_attention_varlen."
)


def check_tensors(query: Tensor, key: Tensor, value: object) -> Tensor:
    """Raise unless all are strided tensors of rank 2 or more on one device; return the value."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(x).__name__}.")
        check_dense(name, x, if_nested=_ABOUT_NESTED)
        if x.dim() < 2:
            raise ValueError(f"{name} must have the shape (..., n, d); got {tuple(x.shape)}.")
    assert isinstance(value, Tensor)
    if not query.is_cpu or not key.is_cpu or not value.is_cpu:
        check_device("key", key, query)
        check_device("value", value, query)
    return value


def check_device(name: str, x: Tensor, query: Tensor) -> None:
    """Raise unless ``x`` is on the device of the query."""
    if x.device != query.device:
        raise ValueError(f"{name} must be on the device of query, {query.device}; got {x.device}.")


def autocast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast as autocast does for PyTorch's own attention; float64 stays."""
    device = "cpu" if query.is_cpu else query.device.type
    if device != "cpu" and not torch.amp.is_autocast_available(device):
        return query, key, value
    if not torch.is_autocast_enabled(device):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    query, key, value = (
        x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x
        for x in (query, key, value)
    )
    return query, key, value


def check_dtypes(query: Tensor, key: Tensor | PackedKeys, value: Tensor) -> None:
    """Raise unless all have the same dtype, of those that attention takes."""
    if query.dtype not in DTYPES or not query.dtype == key.dtype == value.dtype:
        raise TypeError(
            "query, key and value must all be float32, float64, bfloat16 or float16; "
            f"got {query.dtype}, {key.dtype} and {value.dtype}."
        )


def check_per_head(name: str, x: Tensor, query: Tensor) -> None:
    """Raise unless ``x`` has one number for each head of ``query (b, h, q, d)``."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(
            f"{name} must be a floating point tensor; got "
            f"{x.dtype if isinstance(x, Tensor) else type(x).__name__}."
        )
    check_dense(name, x)
    check_device(name, x, query)
    if x.shape != query.shape[1:2]:
        raise ValueError(
            f"{name} must have the shape ({query.shape[1]},), one per head; got {tuple(x.shape)}."
        )


def check_scale(scale: float) -> None:
    """Raise unless the factor is a finite number."""
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"scale must be a number; got {type(scale).__name__}.")
    # A number of a module may be symbolic to the compiler, which cannot ask this of it.
    if not torch.compiler.is_compiling() and not math.isfinite(scale):
        raise ValueError(f"scale must be finite; got {scale}.")


def default_scale(head_dim: int) -> float:
    """``1 / sqrt(d)``."""
    return 1 / math.sqrt(head_dim) if head_dim else 1.0


def check_dropout(dropout_p: float) -> None:
    """Raise unless the probability is a number from 0 to 1."""
    if isinstance(dropout_p, bool) or not isinstance(dropout_p, (int, float)):
        raise TypeError(f"dropout_p must be a number; got {type(dropout_p).__name__}.")
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p must be from 0 to 1; got {dropout_p}.")


def check_switch(name: str, x: bool) -> None:
    """Raise unless an argument is True or False, maybe known only when the graph runs."""
    if not isinstance(x, (bool, torch.SymBool)):
        kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
        raise TypeError(f"{name} must be True or False; got {kind}.")  # numpy has a bool, too


def check_softcap(softcap: float) -> None:
    """Raise unless the bound is a finite number above 0."""
    if isinstance(softcap, bool) or not isinstance(softcap, (int, float)):
        raise TypeError(f"softcap must be a number; got {type(softcap).__name__}.")
    if not 0 < softcap < math.inf:
        raise ValueError(f"softcap must be finite and above 0, or None; got {softcap}.")


def window_sides(window: tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    """Return the two sides of a window, or raise."""
    if window is None:
        return None, None
    is_pair = isinstance(window, (tuple, list)) and len(window) == 2
    if not is_pair or not all(
        side is None or (isinstance(side, int) and not isinstance(side, bool) and side >= 0)
        for side in window
    ):
        raise ValueError(
            "window must be a pair (left, right) of numbers of keys from 0 up, None for no limit; "
            f"got {window!r}."
        )
    left, right = window
    return left, right


def new_seed(dropout_p: float, query: Tensor) -> Tensor | None:
    """Draw the seed of dropout from PyTorch's generator; None without dropout.

    On GPUs it is drawn there, as CUDA graphs need it, and nothing is copied.
    """
    if not dropout_p > 0:
        return None
    device = query.device if query.device.type in ("cuda", "meta") else "cpu"
    return torch.randint(0, 2**62, (), device=device)
