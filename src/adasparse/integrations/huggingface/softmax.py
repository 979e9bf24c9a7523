"""Sparse attention for modules that attend by code of their own: through the softmax they call.

While the forward pass of such a module runs, ``softmax`` over keys is entmax with the exponents of
its heads, and PyTorch's scaled dot-product attention is entmax attention. The module's own code
does everything else: masks, biases, dropout. The matrix of weights is built, as that code does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from adasparse.functional.arguments import bound_of, with_bound
from adasparse.functional.attention import entmax_attention, entmax_attention_weights
from adasparse.functional.entmax import entmax
from adasparse.integrations.huggingface.heads import CHILD, SparseHeads

#: Functions that normalize scores; each takes the dimension as its second argument.
_SOFTMAX = (torch.softmax, Tensor.softmax, functional.softmax)
_SDPA = functional.scaled_dot_product_attention
_MULTI_HEAD: Any = functional.multi_head_attention_forward


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """One call of softmax or of scaled dot-product attention, as it was seen.

    Args:
        shape: That of the scores, ``(b, h, q, k)`` or ``(b * h, q, k)`` where it can be used.
        dim: Dimension that sums to one, counted from the last.
        is_causal: Whether no query gave weight to a later key; None where that does not show.
        turn: Number of the call of the module in which it was seen.
    """

    shape: tuple[int, ...]
    dim: int
    is_causal: bool | None
    turn: int = 0

    def is_of(self, num_heads: int) -> bool:
        """Tell whether these can be scores of ``num_heads`` heads, if heads come before queries."""
        if self.dim != -1 or len(self.shape) not in (3, 4):
            return False
        return self.shape[1] == num_heads if len(self.shape) == 4 else not self.shape[0] % num_heads

    def fits(self, num_heads: int, batch: tuple[int, ...] | None = None) -> bool:
        """Tell whether these are scores of ``num_heads`` heads, and show that heads come first.

        Args:
            num_heads: ``h``.
            batch: Sizes that ``b`` may have; any if None.
        """
        if not self.is_of(num_heads):
            return False
        if len(self.shape) == 4:
            # (b, q, h, k) looks the same if there are as many queries as heads, and is not square.
            _, h, q, k = self.shape
            return q != h or q == k
        return batch is None or self.shape[0] // num_heads in batch


_watchers: list[Callable[[nn.Module, Tensor, Tensor], None]] = []


@contextmanager
def watching_weights(watcher: Callable[[nn.Module, Tensor, Tensor], None]) -> Iterator[None]:
    """Have ``watcher`` called with each module that attends here, its weights and what it sees.

    Weights are ``(b, h, q, k)``, before dropout; what each query sees is a bool of that shape.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _softmax_arguments(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
    **kwargs: Any,
) -> tuple[Tensor, int | None, torch.dtype | None]:
    """Read the arguments of any softmax; those of a tensor and of ``torch`` have no stack level."""
    if isinstance(_stacklevel, torch.dtype):
        dtype = _stacklevel
    return input, dim, dtype


def _from_last(dim: int | None, rank: int) -> int:
    return 0 if dim is None else dim - rank if dim >= 0 else dim


def _by_head(alpha: float | Tensor, scores: Tensor) -> float | Tensor:
    """Return alpha in a shape that broadcasts against ``(b, h, q, k)`` or ``(b h, q, k)``."""
    if not isinstance(alpha, Tensor):
        return alpha
    highest = bound_of(alpha)
    if alpha.numel() == 1:
        return with_bound(alpha.reshape(()), highest)
    if scores.dim() == 3:
        alpha = alpha.repeat(scores.shape[0] // alpha.numel())
    return with_bound(alpha.reshape(-1, 1, 1), highest)


@cache
def _open_multi_head() -> Callable[..., Any]:
    """Return PyTorch's multi-head attention as code whose own calls a mode is asked about.

    The function itself asks the mode about the whole of it, once more wherever it is called.
    """
    asks_nobody = {**_MULTI_HEAD.__globals__, "has_torch_function": lambda _: False}
    name, defaults = _MULTI_HEAD.__name__, _MULTI_HEAD.__defaults__
    return FunctionType(_MULTI_HEAD.__code__, asks_nobody, name, defaults)


class _EntmaxForSoftmax(TorchFunctionMode):
    """Replaces what a module normalizes its scores with."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.heads: SparseHeads = module._modules[CHILD]  # type: ignore[assignment]

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SOFTMAX:
            scores, dim, dtype = _softmax_arguments(*args, **kwargs)
            if scores.dim() > 2:
                return self._normalize(scores, dim, dtype)
        if func is _SDPA:
            return self._attend(*args, **kwargs)
        if func is _MULTI_HEAD:
            with self:
                return _open_multi_head()(*args, **kwargs)
        return func(*args, **kwargs)

    def _normalize(self, scores: Tensor, dim: int | None, dtype: torch.dtype | None) -> Tensor:
        seen = Normalization(
            shape=tuple(scores.shape), dim=_from_last(dim, scores.dim()), is_causal=None
        )
        if not seen.is_of(self.heads.num_heads):
            raise RuntimeError(
                f"{type(self.module).__name__} attends through its softmax, over the last "
                f"dimension of (b, {self.heads.num_heads}, q, k) or (b * {self.heads.num_heads}, "
                f"q, k) when it was made sparse; got {seen.shape} over dimension {seen.dim}. "
                "Leave this module out of SparsityConfig(modules=...)."
            )
        if dtype is not None:
            scores = scores.to(dtype)
        weights = entmax(
            scores, _by_head(self.heads.exponents_for(self.heads.num_heads, scores.device), scores)
        )
        if _watchers and not torch.compiler.is_compiling():
            self._tell(weights, scores > torch.finfo(scores.dtype).min / 2)
        return weights

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        options: dict[str, Any] = {
            "alpha": self.heads.exponents_for(query.shape[1], query.device),
            "attn_mask": attn_mask,
            "is_causal": is_causal,
            "scale": scale,
            "enable_gqa": enable_gqa,
        }
        if _watchers and not torch.compiler.is_compiling():
            weights = entmax_attention_weights(query, key, **options)
            softmax = entmax_attention_weights(query, key, **{**options, "alpha": 1.0})
            self._tell(weights, softmax > 0)
        return entmax_attention(query, key, value, dropout_p=dropout_p, **options)

    def _tell(self, weights: Tensor, can_see: Tensor) -> None:
        shape = (-1, self.heads.num_heads, *weights.shape[-2:])
        for watcher in list(_watchers):
            watcher(self.module, weights.reshape(shape), can_see.reshape(shape))


class ThroughSoftmaxMixin:
    """Additions of the class of a module that attends through its softmax."""

    dense_class: type[nn.Module]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run with entmax for softmax."""
        with _EntmaxForSoftmax(self):  # type: ignore[arg-type]
            return super().forward(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the dense class, which can be imported."""
        return reduced_by(_through_softmax_class, super().__reduce_ex__(protocol), self.dense_class)


def reduced_by(counterpart: Callable[..., Any], reduced: Any, *dense: Any) -> Any:
    """Have pickle look up a class made here by the dense classes that it is made of.

    Args:
        counterpart: Function that returns the class for ``dense``.
        reduced: Return value of ``__reduce_ex__``.
        dense: Classes that can be imported.
    """
    make, (_, *rest), *state = reduced
    return _make, (make, counterpart, dense, *rest), *state


def _make(make: Callable[..., Any], counterpart: Any, dense: tuple[Any, ...], *rest: Any) -> Any:
    return make(counterpart(*dense), *rest)


@cache
def _through_softmax_class(dense: Any) -> Any:
    namespace = {
        "__module__": dense.__module__,
        "__qualname__": dense.__qualname__,
        "__doc__": dense.__doc__,
        "dense_class": dense,
    }
    return type(dense.__name__, (ThroughSoftmaxMixin, dense), namespace)


def route_through_softmax(module: nn.Module) -> None:
    """Have a module, which has exponents, use them in its own code."""
    dense: Any = type(module)
    module.__class__ = _through_softmax_class(dense)


def unroute(module: nn.Module) -> None:
    """Undo ``route_through_softmax``, where it was done."""
    dense: Any = getattr(type(module), "dense_class", None)
    if isinstance(module, ThroughSoftmaxMixin):
        module.__class__ = dense


class SeeNormalizations(TorchFunctionMode):
    """Reports every call of softmax or scaled dot-product attention to ``see``."""

    def __init__(self, see: Callable[[Normalization], None]) -> None:
        super().__init__()
        self.see = see

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is _MULTI_HEAD:
            with self:
                return _open_multi_head()(*args, **kwargs)
        output = func(*args, **kwargs)
        if func in _SOFTMAX:
            scores, dim, _ = _softmax_arguments(*args, **kwargs)
            self.see(
                Normalization(
                    shape=tuple(scores.shape),
                    dim=_from_last(dim, scores.dim()),
                    is_causal=_looks_causal(output),
                )
            )
        elif func is _SDPA:
            self.see(_of_sdpa(*args, **kwargs))
        return output


def _looks_causal(weights: Tensor) -> bool | None:
    if weights.dim() < 3 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < 2:
        return None
    return not bool(weights.triu(1).any())


def _of_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **kwargs: Any,
) -> Normalization:
    if attn_mask is not None and not is_causal:
        mask = attn_mask
        seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        is_causal = bool(_looks_causal(seen.expand(*seen.shape[:-2], query.shape[-2], -1)))
    shape = (*query.shape[:-1], key.shape[-2])
    # Fewer dimensions than scores of softmax may have: the kernel takes one form only.
    return Normalization(shape=shape, dim=-1 if query.dim() == 4 else 0, is_causal=is_causal)
