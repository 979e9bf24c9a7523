"""Three ways to the same attention: short in eager mode, registered, or in plain PyTorch."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from adasparse.functional.attention_inputs import Inputs
from adasparse.functional.entmax import (
    check_alpha_values,
    choose_kernels,
    entmax,
    needs_registered_op,
)
from adasparse.kernels import cpu, plain_attention
from adasparse.kernels.problem import AttentionGradients, AttentionProblem

#: How many of the fields of Inputs are tensors.
_TENSORS = 8
#: Of these the compiled kernel can read the memory.
_READABLE_TYPES = {Tensor, torch.nn.Parameter, type(None)}


def _compute_dtype(query: Tensor, alpha: Tensor) -> torch.dtype:
    """Return float32 or float64, which alpha above 2 needs too, being steep at the edge.

    Raises if an alpha in CPU memory is below 1; others would stall the device.
    """
    if not alpha.is_cpu or not alpha.numel():
        values = [1.0]
    elif alpha.numel() == 1:
        values = [alpha.item()]
    elif alpha.dim() == 1:
        values = alpha.tolist()  # quicker than an operation, for one number per head
    else:
        values = [x.item() for x in alpha.detach().aminmax()]
    if not all(x >= 1 for x in values):
        check_alpha_values(alpha, 1.0)
    is_steep = query.dtype == torch.float64 or max(values) > 2
    return torch.float64 if is_steep else torch.float32


def _readable(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` in ``dtype`` with its last dimension in one piece."""
    if x.dtype != dtype:
        x = x.to(dtype)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _as(x: Tensor, like: Tensor) -> Tensor:
    """``x.to(like.dtype)``, which takes its time where there is nothing to do."""
    return x if x.dtype == like.dtype else x.to(like.dtype)


def _problem(inputs: Inputs, dtype: torch.dtype) -> AttentionProblem:
    """Convert what a kernel reads; no more than that is copied."""
    query, key, value, alpha, mask, slopes, key_lengths, seed, scale, is_causal, p = inputs
    if alpha.device != query.device:
        alpha = alpha.to(query.device)
    if mask is not None and mask.dtype != torch.bool and mask.dtype != dtype:
        mask = mask.to(dtype)
    return AttentionProblem(
        query=_readable(query, dtype),
        key=_readable(key, dtype),
        value=_readable(value, dtype),
        alpha=(alpha if alpha.dim() == 4 else alpha.reshape(1, -1, 1, 1)).double(),
        scale=scale,
        mask=mask,
        key_lengths=key_lengths,
        slopes=None if slopes is None else slopes.double().contiguous(),
        seed=seed,
        is_causal=is_causal,
        dropout_p=p,
    )


def _can_see_values(inputs: Inputs) -> bool:
    return not (
        needs_registered_op(inputs.query, inputs.alpha)
        or torch._C._are_functorch_transforms_active()
    )


def _plain_problem(inputs: Inputs) -> AttentionProblem:
    """The problem for kernels in plain PyTorch, differentiable by everything."""
    if _can_see_values(inputs):
        dtype = _compute_dtype(inputs.query, inputs.alpha)
    else:
        dtype = torch.float64 if inputs.query.dtype == torch.float64 else torch.float32
    return _problem(inputs, dtype)


def _without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Keep autocast from rounding what is computed in full precision."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def _plain_entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    return entmax(scores, alpha, backend="plain")


def _plain_attention(inputs: Inputs, backend: str) -> Tensor:
    """Attend in PyTorch operations, for every device and gradients of any order."""
    with _without_autocast(inputs.query.device):
        by = _plain_entmax if backend == "plain" else entmax
        output = plain_attention.attention(_plain_problem(inputs), by)
    return output.to(inputs.query.dtype)


def weigh(inputs: Inputs, backend: str) -> Tensor:
    """Return the weights ``(b, h, q, k)`` as a matrix, differentiable by everything."""
    with _without_autocast(inputs.query.device):
        problem = _plain_problem(inputs)
        scores = plain_attention.attention_scores(problem)
        return entmax(scores, problem.alpha, backend=backend).to(inputs.query.dtype)


def _native_forward(inputs: Inputs) -> Tensor:
    problem = _problem(inputs, _compute_dtype(inputs.query, inputs.alpha))
    return _as(cpu.attention_forward(problem, keep=False)[0], inputs.query)


def _native_backward(
    inputs: Inputs,
    dtype: torch.dtype,
    saved: tuple[Tensor, ...],
    grad: Tensor,
    needs: tuple[bool, ...],
) -> list[Tensor | None]:
    """Gradients by the first six of ``inputs``, the last three of them only where in ``needs``."""
    wide: AttentionGradients = cpu.attention_backward(
        _problem(inputs, dtype),
        saved,
        _readable(grad, dtype),
        with_alpha=needs[3],
        with_mask=needs[4],
        with_slopes=needs[5],
    )
    by_alpha = None if wide.alpha is None else wide.alpha.reshape(inputs.alpha.shape)
    found = (wide.query, wide.key, wide.value, by_alpha, wide.mask, wide.slopes)
    return [
        x if x is None or like is None else _as(x, like)
        for x, like in zip(found, inputs.tensors(), strict=False)
    ]


def _differentiable_backward(
    inputs: Inputs, grad: Tensor, needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """Gradients by all tensors that can be differentiated again, in PyTorch operations."""
    # Aliases, since one tensor may have been passed twice or been computed from another.
    tensors: list[Any] = [
        x.view_as(x) if x is not None and need else x
        for x, need in zip(inputs.tensors(), needs, strict=False)
    ]
    output = _plain_attention(Inputs(*tensors, *inputs[_TENSORS:]), "auto")
    wanted = [x for x, need in zip(tensors, needs, strict=False) if need]
    found = iter(torch.autograd.grad(output, wanted, grad, create_graph=True))
    return [next(found) if need else None for need in needs[:_TENSORS]]


class _ShortAttention(torch.autograd.Function):
    """The compiled kernel, the short way."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        inputs = Inputs(*arguments)
        ctx.dtype = _compute_dtype(inputs.query, inputs.alpha)
        output, saved = cpu.attention_forward(_problem(inputs, ctx.dtype), keep=True)
        ctx.save_for_backward(*arguments[:_TENSORS], *saved)
        ctx.numbers = arguments[_TENSORS:]
        return _as(output, inputs.query)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad
        inputs = Inputs(*tensors[:_TENSORS], *ctx.numbers)
        if torch.is_grad_enabled():
            gradients = _differentiable_backward(inputs, grad, needs)
        else:
            gradients = _native_backward(inputs, ctx.dtype, tensors[_TENSORS:], grad, needs)
        return (*gradients, *[None] * (len(inputs) - len(gradients)))


_SCHEMA = (
    "Tensor query, Tensor key, Tensor value, Tensor alpha, Tensor? mask, Tensor? slopes, "
    "Tensor? key_lengths, Tensor? seed, float scale, bool is_causal, float dropout_p"
)
_FLAGS = "bool with_alpha, bool with_mask, bool with_slopes"


@torch.library.custom_op(
    "adasparse::entmax_attention", mutates_args=(), schema=f"({_SCHEMA}) -> Tensor"
)
def _attention_op(*arguments: Any) -> Tensor:
    return _native_forward(Inputs(*arguments)).contiguous()


@_attention_op.register_fake
def _(*arguments: Any) -> Tensor:
    query, _, value = arguments[:3]
    output: Tensor = query.new_empty(*query.shape[:3], value.shape[3])
    return output


@torch.library.custom_op(
    "adasparse::entmax_attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_SCHEMA}, {_FLAGS})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _attention_backward_op(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """Gradients by the first six of the inputs, empty where not asked for."""
    inputs = Inputs(*arguments[:-3])
    dtype = _compute_dtype(inputs.query, inputs.alpha)
    _, saved = cpu.attention_forward(_problem(inputs, dtype), keep=True)
    gradients = _native_backward(inputs, dtype, saved, grad, (True, True, True, *arguments[-3:]))
    return tuple(grad.new_empty(0) if x is None else x.contiguous() for x in gradients)


@_attention_backward_op.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    needs = (True, True, True, *arguments[-3:])
    return tuple(
        x.new_empty(x.shape) if need and x is not None else grad.new_empty(0)
        for x, need in zip(arguments, needs, strict=False)
    )


def _op_setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.numbers = inputs[_TENSORS:]


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad
    gradients = _attention_backward_op(grad, *ctx.saved_tensors, *ctx.numbers, *needs[3:6])
    wanted = [x if need else None for x, need in zip(gradients, needs, strict=False)]
    return (*wanted, *[None] * (len(needs) - len(wanted)))


_attention_op.register_autograd(_op_backward, setup_context=_op_setup_context)


@torch.library.custom_op(
    "adasparse::entmax_attention_support",
    mutates_args=(),
    schema=f"({_SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def _support_op(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _native_support(Inputs(*arguments))


@_support_op.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    query = arguments[0]
    b, h, q, _ = query.shape
    size = torch.library.get_ctx().new_dynamic_size()
    crow, col = (query.new_empty(n, dtype=torch.int64) for n in (b * h * q + 1, size))
    return crow, col, query.new_empty(size)


def _native_support(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    problem = _problem(inputs, _compute_dtype(inputs.query, inputs.alpha))
    crow, col, value = cpu.attention_support(problem)
    return crow, col, _as(value, inputs.query)


def _plain_support(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    crow, col, value = plain_attention.attention_support(_plain_problem(inputs), _plain_entmax)
    return crow, col, value.to(inputs.query.dtype)


def _is_native(inputs: Inputs, backend: str) -> bool:
    """Whether the compiled kernel can serve; it needs memory to read and something to do."""
    query, key, value = inputs[:3]
    if backend == "auto" and torch.compiler.is_compiling():
        is_there = query.is_cpu and cpu.is_available()  # without a warning, which cannot be traced
    else:
        is_there = choose_kernels(query.device, backend) is cpu
    has_entries = query.numel() and key.numel() and value.numel()
    return bool(is_there and has_entries and not torch._C._are_functorch_transforms_active())


def _needs_registered_op(inputs: Inputs) -> bool:
    return torch.compiler.is_compiling() or not _READABLE_TYPES.issuperset(
        map(type, inputs.tensors())
    )


def support(inputs: Inputs, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return crow, col and value of the weights that are not zero, without gradients."""
    with torch.no_grad(), _without_autocast(inputs.query.device):
        if not _is_native(inputs, backend):
            return _plain_support(inputs)
        if _needs_registered_op(inputs):
            return _support_op(*inputs)  # type: ignore[no-any-return]
        return _native_support(inputs)


def attend(inputs: Inputs, backend: str) -> Tensor:
    """Go the quickest way to ``(b, h, q, e)`` that will do for this call."""
    if not _is_native(inputs, backend):
        return _plain_attention(inputs, backend)
    if _needs_registered_op(inputs):
        return _attention_op(*inputs)  # type: ignore[no-any-return]
    query, key, value, alpha, mask, slopes = inputs[:6]
    if torch.is_grad_enabled() and (
        query.requires_grad
        or key.requires_grad
        or value.requires_grad
        or alpha.requires_grad
        or (mask is not None and mask.requires_grad)
        or (slopes is not None and slopes.requires_grad)
    ):
        return _ShortAttention.apply(*inputs)  # type: ignore[no-any-return]
    return _native_forward(inputs)
