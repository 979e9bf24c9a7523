"""Attention as an operator: eager autograd, and registered operators for torch.compile.

Tensors travel through both by the field names of ``AttentionProblem``.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from adasparse.functional.attention_arguments import compute_dtype, prepared, readable
from adasparse.functional.backends import (
    Backend,
    choose_backend,
    differentiable_kernels,
    is_batched,
    is_transformed,
    needs_gradient,
    needs_registered_op,
    register_loop,
)
from adasparse.functional.differentiable_attention import (
    differentiable_attention,
    without_autocast,
)
from adasparse.kernels import AttentionGradients, AttentionProblem, Kernels, SparseRows
from adasparse.kernels.problem import (
    field_names,
    from_tensors,
    schema_of,
    tensor_names,
    tensors_of,
    values_of,
    with_tensors,
)

_FIELDS = field_names(AttentionProblem)
_TENSORS = tensor_names(AttentionProblem)
_GRADIENTS = tensor_names(AttentionGradients)
_NO_TENSORS: dict[str, None] = dict.fromkeys(_TENSORS)


def _kernel_dtype(problem: AttentionProblem, kernels: Kernels) -> torch.dtype:
    """Return the dtype of the tensors that the kernels read."""
    dtype = compute_dtype(problem)
    if dtype == torch.float32 != problem.query.dtype:
        return problem.query.dtype if getattr(kernels, "accepts_half_precision", False) else dtype
    return dtype


def _as(x: Tensor, like: Tensor) -> Tensor:
    """``x.to(like.dtype)``, which takes its time where there is nothing to do."""
    return x if x.dtype == like.dtype else x.to(like.dtype)


def _like(x: Tensor, like: Tensor) -> Tensor:
    """Return ``x`` in the shape and dtype and on the device of ``like``, a CPU for one alpha."""
    x = _as(x if x.shape == like.shape else x.reshape(like.shape), like)
    return x if x.device == like.device else x.to(like.device)


@cache
def _needs(needs_input_grad: tuple[bool, ...]) -> frozenset[str]:
    """Return the names of the tensors that need a gradient."""
    return frozenset(name for name, need in zip(_TENSORS, needs_input_grad, strict=True) if need)


def _forward(problem: AttentionProblem, kernels: Kernels) -> Tensor:
    wide = prepared(problem, _kernel_dtype(problem, kernels))
    return _as(kernels.attention_forward(wide, keep=False)[0], problem.query)


def _backward(
    problem: AttentionProblem,
    dtype: torch.dtype,
    saved: Any,
    grad: Tensor,
    needs: frozenset[str],
    kernels: Kernels,
) -> dict[str, Tensor]:
    """Return a gradient for each name in ``needs``, in the shape and dtype of the field."""
    wide = prepared(problem, dtype)
    found = kernels.attention_backward(wide, saved, readable(grad, dtype), needs)
    gradients, given = vars(found), vars(problem)
    return {name: _like(gradients[name], given[name]) for name in needs}


def _differentiable_backward(
    problem: AttentionProblem, grad: Tensor, needs: frozenset[str]
) -> dict[str, Tensor]:
    """Return gradients that can be differentiated again, in PyTorch operations."""
    # Aliases, since one tensor may have been passed twice or been computed from another.
    aliases = {name: getattr(problem, name) for name in _GRADIENTS if name in needs}
    aliases = {name: x.view_as(x) for name, x in aliases.items()}
    output = differentiable_attention(with_tensors(problem, aliases))
    found = torch.autograd.grad(output, list(aliases.values()), grad, create_graph=True)
    return dict(zip(aliases, found, strict=True))


class _EagerAttention(torch.autograd.Function):
    """The kernels of a backend, in the form that costs an eager call the least.

    Takes the backend, the problem and its tensors, in the order of the fields.
    """

    @staticmethod
    def forward(
        ctx: Any, backend: Backend, problem: AttentionProblem, *tensors: Tensor | None
    ) -> Tensor:
        kernels = backend.load()
        ctx.dtype = _kernel_dtype(problem, kernels)
        output, saved = kernels.attention_forward(prepared(problem, ctx.dtype), keep=True)
        ctx.saved_type = type(saved)
        ctx.save_for_backward(*tensors, *vars(saved).values())
        ctx.backend = backend
        ctx.options = with_tensors(problem, _NO_TENSORS)
        return _as(output, problem.query)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = iter(ctx.saved_tensors)
        problem = with_tensors(ctx.options, {name: next(tensors) for name in _TENSORS})
        saved = from_tensors(ctx.saved_type, tensors)
        _, _, *needed = ctx.needs_input_grad
        needs = _needs(tuple(needed))
        if torch.is_grad_enabled():
            gradients = _differentiable_backward(problem, grad, needs)
        elif is_batched(grad):
            gradients = _registered_backward(problem, grad, needs, ctx.backend.name)
        else:
            kernels = ctx.backend.load()
            gradients = _backward(problem, ctx.dtype, saved, grad, needs, kernels)
        return None, None, *map(gradients.get, _TENSORS)


def _problem_of(arguments: tuple[Any, ...]) -> AttentionProblem:
    """Rebuild the problem from the arguments of a registered operator."""
    *values, _ = arguments
    return AttentionProblem(**dict(zip(_FIELDS, values, strict=True)))


def _from_arguments(arguments: tuple[Any, ...]) -> tuple[AttentionProblem, Kernels]:
    """Rebuild the call, and choose its kernels.

    A graph that is traced says ``"auto"``: whether kernels support an alpha shows in its value.
    """
    problem = _problem_of(arguments)
    return problem, choose_backend(arguments[-1], problem.query, problem).load()


_SCHEMA = f"{schema_of(AttentionProblem)}, str backend"


@torch.library.custom_op(
    "adasparse::entmax_attention", mutates_args=(), schema=f"({_SCHEMA}) -> Tensor"
)
def _attention_op(*arguments: Any) -> Tensor:
    return _forward(*_from_arguments(arguments)).contiguous()


@_attention_op.register_fake
def _(*arguments: Any) -> Tensor:
    problem = _problem_of(arguments)
    return problem.query.new_empty(*problem.query.shape[:3], problem.value.shape[3])


@torch.library.custom_op(
    "adasparse::entmax_attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, str needs, {_SCHEMA}) -> ({', '.join('Tensor' for _ in _GRADIENTS)})",
)
def _attention_backward_op(grad: Tensor, needs: str, *arguments: Any) -> tuple[Tensor, ...]:
    """Gradients in the order of ``AttentionGradients``, empty unless named in ``needs``."""
    problem, kernels = _from_arguments(arguments)
    dtype = _kernel_dtype(problem, kernels)
    _, saved = kernels.attention_forward(prepared(problem, dtype), keep=True)
    gradients = _backward(problem, dtype, saved, grad, frozenset(needs.split()), kernels)
    return tuple(
        gradients[name].contiguous() if name in gradients else grad.new_empty(0)
        for name in _GRADIENTS
    )


@_attention_backward_op.register_fake
def _(grad: Tensor, needs: str, *arguments: Any) -> tuple[Tensor, ...]:
    problem = _problem_of(arguments)
    named = {name: getattr(problem, name) for name in needs.split()}
    return tuple(
        named[name].new_empty(named[name].shape) if name in named else grad.new_empty(0)
        for name in _GRADIENTS
    )


register_loop(_attention_backward_op)


def _registered_backward(
    problem: AttentionProblem, grad: Tensor, needs: frozenset[str], backend: str
) -> dict[str, Tensor]:
    """Return a gradient for each name in ``needs``, from the registered operator."""
    named = " ".join(sorted(needs))
    found = _attention_backward_op(grad, named, **values_of(problem), backend=backend)
    return {name: x for name, x in zip(_GRADIENTS, found, strict=True) if name in needs}


def _op_setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values = dict(zip((*_FIELDS, "backend"), inputs, strict=True))
    ctx.save_for_backward(*(values.pop(name) for name in _TENSORS))
    ctx.options = values


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    tensors = dict(zip(_TENSORS, ctx.saved_tensors, strict=True))
    *needed, _ = ctx.needs_input_grad
    needs = [name for name, need in zip(_FIELDS, needed, strict=True) if need]
    found = _attention_backward_op(grad, " ".join(needs), **tensors, **ctx.options)
    gradients = dict(zip(_GRADIENTS, found, strict=True))
    return *(gradients[name] if name in needs else None for name in _FIELDS), None


_attention_op.register_autograd(_op_backward, setup_context=_op_setup_context)


def _composed(problem: AttentionProblem, backend: str) -> Tensor:
    """Attention for runtimes that know PyTorch's operators alone."""
    if problem.seed is not None:
        raise NotImplementedError(
            f"The exported graph cannot hold dropout; got dropout_p={problem.dropout_p}. "
            "Call model.eval() before the export."
        )
    if problem.cu_seq_q is not None:
        raise NotImplementedError(
            "The exported graph cannot hold packed sequences; export a padded batch with "
            "key_lengths or a mask instead."
        )
    known = differentiable_kernels.known_alpha(problem.alpha)
    if known is not None or (problem.highest_alpha or math.inf) <= 2:
        return differentiable_attention(problem, backend)
    # One above 2 needs scores in float64, and the graph cannot know.
    wide = with_tensors(problem, {"query": problem.query.double()})
    return differentiable_attention(wide, backend).to(problem.query.dtype)


def attention_decomposition(*arguments: Any) -> Tensor:
    """The registered operator in PyTorch operations and ``entmax``."""
    return _composed(_problem_of(arguments), "torch")


@torch.library.custom_op(
    "adasparse::entmax_attention_support",
    mutates_args=(),
    schema=f"({_SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def _support_op(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = _support(*_from_arguments(arguments))
    return rows.crow, rows.col, rows.value


@_support_op.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    query = _problem_of(arguments).query
    b, h, q, _ = query.shape
    size = torch.library.get_ctx().new_dynamic_size()
    crow, col = (query.new_empty(n, dtype=torch.int64) for n in (b * h * q + 1, size))
    return crow, col, query.new_empty(size)


def _support(problem: AttentionProblem, kernels: Kernels) -> SparseRows:
    rows = kernels.attention_support(prepared(problem, _kernel_dtype(problem, kernels)))
    return _without_zeros(with_tensors(rows, {"value": _as(rows.value, problem.query)}))


def _without_zeros(rows: SparseRows) -> SparseRows:
    """Drop the weights that rounding to their dtype has made zero."""
    kept = rows.value != 0
    if bool(kept.all()):
        return rows
    before = torch.cat((kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)))
    return SparseRows(crow=before[rows.crow], col=rows.col[kept], value=rows.value[kept])


def _needs_composition(problem: AttentionProblem) -> bool:
    """Whether kernels cannot read the tensors, or have nothing to do."""
    has_entries = problem.query.numel() and problem.key.numel() and problem.value.numel()
    return not has_entries or is_transformed()


def support(problem: AttentionProblem, backend: str) -> SparseRows:
    """Return the nonzero weights, without gradients."""
    with torch.no_grad(), without_autocast(problem.query.device):
        chosen = choose_backend(backend, problem.query, problem)
        if _needs_composition(problem):
            return _support(problem, differentiable_kernels)
        kernels = chosen.load()
        if needs_registered_op(*tensors_of(problem, _TENSORS)):
            crow, col, value = _support_op(**values_of(problem), backend=backend)
            return SparseRows(crow=crow, col=col, value=value)
        return _support(problem, kernels)


def attend(problem: AttentionProblem, backend: str) -> Tensor:
    """Return the output ``(b, h, q, e)`` by the fastest route that supports this call."""
    chosen = choose_backend(backend, problem.query, problem)
    if _needs_composition(problem):
        return differentiable_attention(problem, backend)
    kernels = chosen.load()
    tensors = tensors_of(problem, _TENSORS)
    if needs_registered_op(*tensors):
        if torch.onnx.is_in_onnx_export():
            return _composed(problem, backend)
        # PyTorch operations are compiled as they are, so that they can be fused; those of a packed
        # batch depend on its offsets.
        if kernels is differentiable_kernels and problem.cu_seq_q is None:
            return differentiable_attention(problem, backend)
        output: Tensor = _attention_op(**values_of(problem), backend=backend)
        return output
    if needs_gradient(*tensors):
        return _EagerAttention.apply(chosen, problem, *tensors)  # type: ignore[no-any-return]
    return _forward(problem, kernels)
