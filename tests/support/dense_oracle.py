"""The float64 oracle: a dense model whose softmax is the reference entmax.

It shares nothing with the integration but the exponents: eager attention of transformers, its own
masks, and in each attention module the reference with its hand-written gradient for softmax.
"""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from adasparse.integrations.huggingface import restore
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.integrations.huggingface.implementations import holders
from adasparse.kernels import reference


class _ReferenceEntmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor) -> Tensor:
        """``scores`` ``(b, h, q, k)`` or ``(b * h, q, k)``, ``alpha`` ``(h,)``."""
        h, (q, k) = len(alpha), scores.shape[-2:]
        b = scores.numel() // (h * q * k)
        rows = alpha.reshape(1, h, 1).expand(b, h, q).reshape(-1)
        weights = reference.entmax_forward(scores.reshape(-1, k), rows)
        ctx.save_for_backward(weights, rows)
        ctx.shape, ctx.sizes = scores.shape, (b, h, q)
        return weights.reshape(scores.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        weights, rows = ctx.saved_tensors
        by_scores, by_alpha = reference.entmax_backward(
            weights, grad.reshape(weights.shape), rows, with_alpha=True
        )
        return by_scores.reshape(ctx.shape), by_alpha.reshape(ctx.sizes).sum((0, 2))


class DenseOracle:
    """A dense copy of a sparse model, in float64, with exponents that receive gradients."""

    def __init__(self, sparse: PreTrainedModel) -> None:
        self.alphas = {}
        for name, heads in sparse_heads(sparse).items():
            alpha = torch.as_tensor(heads.exponents()).detach().double()
            self.alphas[name] = alpha.expand(heads.num_heads).clone().requires_grad_()
        self.model = copy.deepcopy(sparse)
        restore(self.model)
        for _, _, _, config in holders(self.model):
            config._attn_implementation_internal = "eager"
            config._experts_implementation_internal = "eager"  # others do not know float64
        self.model.double()

    def __call__(self, **inputs: Any) -> Any:
        inputs = {
            key: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
            for key, x in inputs.items()
        }
        with self._entmax_for_softmax():
            return self.model(**inputs)

    @contextmanager
    def _entmax_for_softmax(self) -> Iterator[None]:
        running: list[tuple[Tensor, nn.Module]] = []  # exponents and attention module
        sinks: list[Tensor] = []  # for the next softmax, as the score of one key more

        def enter(name: str) -> Any:
            return lambda module, _: running.append((self.alphas[name], module))

        def leave(*_: Any) -> None:
            running.pop()

        softmax, total = torch.softmax, torch.logsumexp

        def logsumexp(scores: Tensor, *dim: Any, **options: Any) -> Tensor:
            # Granite SWA multiplies outputs by sigmoid(logsumexp(scores) - sinks), which is a sink
            # for softmax alone: that factor becomes 1, and entmax gets the sink.
            found = total(scores, *dim, **options)
            if not running or not hasattr(running[-1][1], "sinks"):
                return found
            sinks.append(running[-1][1].sinks)
            return torch.full_like(found, torch.inf)

        def entmax(scores: Tensor, dim: int = -1, *rest: Any, **options: Any) -> Tensor:
            if not running or scores.dim() < 3 or dim not in (-1, scores.dim() - 1):  # no keys
                return softmax(scores, dim, *rest, **options)
            scores = scores.double()
            masked = scores < torch.finfo(torch.float32).min / 2
            scores = scores.masked_fill(masked, -torch.inf)
            alpha, _ = running[-1]
            if not sinks:
                return _ReferenceEntmax.apply(scores, alpha)
            sink = sinks.pop().reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
            return _ReferenceEntmax.apply(torch.cat([scores, sink], -1), alpha)[..., :-1]

        sdpa = nn.functional.scaled_dot_product_attention

        def attend(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Tensor:
            if not running:
                return sdpa(query, key, value, *rest, **options)
            return _attend(query, key, value, running[-1][0], *rest, **options)

        with ExitStack() as stack:
            stack.callback(torch.backends.mha.set_fastpath_enabled, True)
            torch.backends.mha.set_fastpath_enabled(False)  # it calls no softmax that shows
            patch = mock.patch.object(nn.functional, "scaled_dot_product_attention", attend)
            stack.enter_context(patch)
            for name in self.alphas:
                module = self.model.get_submodule(name)
                stack.callback(module.register_forward_pre_hook(enter(name)).remove)
                stack.callback(module.register_forward_hook(leave).remove)
            for owner in (nn.functional, torch, Tensor):
                stack.enter_context(mock.patch.object(owner, "softmax", entmax))
            stack.enter_context(mock.patch.object(torch, "logsumexp", logsumexp))
            yield


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention as PyTorch documents it, with the reference entmax."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    scores = scores.masked_fill(scores < torch.finfo(torch.float32).min / 2, -torch.inf)
    return _ReferenceEntmax.apply(scores, alpha) @ value
