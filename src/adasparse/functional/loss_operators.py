"""The losses of rows as an operator: eager autograd, torch.func, and registered operators.

Tensors travel through all of them by the field names of ``LossProblem``.
"""

from typing import Any

import torch
from torch import Tensor

from adasparse.functional.arguments import (
    alpha_rows,
    check_alpha_values,
    sum_to_alpha,
)
from adasparse.functional.backends import (
    choose_backend,
    choose_kernels,
    differentiable_kernels,
    is_batched,
    is_transformed,
    needs_registered_op,
)
from adasparse.functional.entmax import entmax_from
from adasparse.kernels import LossProblem
from adasparse.kernels.problem import (
    field_names,
    from_tensors,
    schema_of,
    tensor_names,
    tensors_of,
    values_of,
    with_tensors,
)

_FIELDS = field_names(LossProblem)
_TENSORS = tensor_names(LossProblem)
_NO_TENSORS: dict[str, None] = dict.fromkeys(_TENSORS)


def _check_index(index: Tensor, n: int, ignore_index: int) -> None:
    """Raise if a class in CPU memory does not exist; elsewhere the kernel itself would."""
    if index.device.type != "cpu" or index.numel() == 0:
        return
    low, high = index.aminmax()
    if low.item() >= 0 and high.item() < n:
        return
    bad = ((index < 0) | (index >= n)) & (index != ignore_index)
    if bool(bad.any()):
        raise IndexError(
            f"target must hold classes from 0 to {n - 1} or ignore_index {ignore_index}; "
            f"got {int(index[bad][0])}."
        )


def _prepared(problem: LossProblem) -> LossProblem:
    """Return the problem in the form that kernels read: one dtype and contiguous memory."""
    scores, index = problem.scores, problem.index
    probability, weight = problem.probability, problem.weight
    return with_tensors(
        problem,
        {
            "scores": scores.contiguous().resolve_neg(),
            "alpha": alpha_rows(problem.alpha, scores.shape[:-1]),
            "index": None if index is None else index.contiguous(),
            "probability": None
            if probability is None
            else probability.to(scores.dtype).contiguous().resolve_neg(),
            "weight": None
            if weight is None
            else weight.to(scores.dtype).contiguous().resolve_neg(),
        },
    )


def _row_dtype(scores: Tensor) -> torch.dtype:
    """Losses of half-precision rows stay in float32 until they are reduced."""
    return torch.float64 if scores.dtype == torch.float64 else torch.float32


def _forward(problem: LossProblem, lowest: float, backend: str) -> tuple[Tensor, Any]:
    """Return the loss of each row, and what the backend saves for backward."""
    check_alpha_values(problem.alpha, lowest)
    if problem.index is not None:
        _check_index(problem.index, problem.scores.shape[-1], problem.ignore_index)
    kernels = choose_kernels(backend, problem.scores)
    loss, saved = kernels.loss_forward(_prepared(problem))
    return loss.to(_row_dtype(problem.scores)), saved


def _backward(
    problem: LossProblem, saved: Any, grad: Tensor, with_alpha: bool, backend: str
) -> tuple[Tensor, Tensor | None]:
    kernels = choose_kernels(backend, problem.scores)
    grad_scores, grad_alpha = kernels.loss_backward(
        _prepared(problem), saved, grad.double().contiguous().resolve_neg(), with_alpha=with_alpha
    )
    if grad_alpha is not None:
        grad_alpha = sum_to_alpha(grad_alpha, problem.alpha, problem.scores.shape[:-1])
    return grad_scores, grad_alpha


def _differentiable_backward(
    problem: LossProblem, grad: Tensor, lowest: float, backend: str
) -> tuple[Tensor, Tensor]:
    """The backward pass in PyTorch operations, for gradients of gradients."""
    grad_scores, by_row = _row_gradients(problem, lowest, backend, grad)
    return grad_scores, sum_to_alpha(by_row, problem.alpha, problem.scores.shape[:-1])


def _row_gradients(
    problem: LossProblem, lowest: float, backend: str, grad: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of each row in PyTorch operations: with respect to scores, and to alpha."""
    scores, alpha = problem.scores, problem.alpha
    weights = entmax_from(scores, alpha, -1, lowest=lowest, backend=backend)
    wide = alpha.double().expand(scores.shape[0], 1).reshape(-1)
    if grad is None:
        grad = weights.new_ones(scores.shape[0])
    return differentiable_kernels.loss_gradient(
        with_tensors(problem, {"alpha": wide}), weights, grad
    )


class _EagerLoss(torch.autograd.Function):
    """The loss of each row of ``(rows, n)``; alpha is of rank 0 or ``(rows, 1)``.

    Takes the problem, its tensors in the order of the fields, the lower bound of alpha and the
    name of a backend.
    """

    @staticmethod
    def forward(ctx: Any, problem: LossProblem, *arguments: Any) -> Tensor:
        *tensors, ctx.lowest, ctx.backend = arguments
        loss, saved = _forward(problem, ctx.lowest, ctx.backend)
        ctx.saved_type = type(saved)
        ctx.save_for_backward(*tensors, *vars(saved).values())
        ctx.options = with_tensors(problem, _NO_TENSORS)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        tensors = iter(ctx.saved_tensors)
        problem = with_tensors(ctx.options, {name: next(tensors) for name in _TENSORS})
        saved = from_tensors(ctx.saved_type, tensors)
        _, *needed, _, _ = ctx.needs_input_grad
        needs = dict(zip(_TENSORS, needed, strict=True))
        gradients: dict[str, Tensor | None] = {}
        if torch.is_grad_enabled() or is_batched(grad):
            found = _differentiable_backward(problem, grad, ctx.lowest, ctx.backend)
            gradients["scores"], gradients["alpha"] = found
        else:
            gradients["scores"], gradients["alpha"] = _backward(
                problem, saved, grad, needs["alpha"], ctx.backend
            )
        wanted = (gradients.get(name) if needs[name] else None for name in _TENSORS)
        return None, *wanted, None, None


class _FunctorchLoss(_EagerLoss):
    """The same for torch.func; PyTorch takes longer over this form.

    Saved tensors have to be outputs here. The problem comes without tensors, which are wrapped.
    """

    @staticmethod
    def forward(problem: LossProblem, *arguments: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        *tensors, lowest, backend = arguments
        problem = with_tensors(problem, dict(zip(_TENSORS, tensors, strict=True)))
        loss, saved = _forward(problem, lowest, backend)
        return loss, *vars(saved).values()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.options, *tensors, ctx.lowest, ctx.backend = inputs
        _, *saved = output
        ctx.mark_non_differentiable(*saved)
        problem = with_tensors(ctx.options, dict(zip(_TENSORS, tensors, strict=True)))
        kernels = choose_kernels(ctx.backend, problem.scores)
        ctx.saved_type = type(kernels.empty_loss_saved(problem))
        ctx.save_for_backward(*tensors, *saved)
        ctx.save_for_forward(*tensors)
        ctx.num_saved = len(saved)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> tuple[Tensor | None, ...]:
        tensors = iter(ctx.saved_tensors)
        problem = with_tensors(ctx.options, {name: next(tensors) for name in _TENSORS})
        *moved, _, _ = tangents
        by_name = dict(zip(_TENSORS, moved, strict=True))
        by_scores, by_alpha = _row_gradients(problem, ctx.lowest, ctx.backend)
        loss = torch.zeros_like(by_alpha)
        if by_name["scores"] is not None:
            loss = loss + (by_scores * by_name["scores"]).sum(-1)
        if by_name["alpha"] is not None:
            loss = loss + by_alpha * by_name["alpha"].reshape(-1)
        return loss.to(_row_dtype(problem.scores)), *[None] * ctx.num_saved

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], problem: LossProblem, *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *tensors, lowest, backend = arguments
        _, *tensor_dims, _, _ = in_dims
        given: dict[str, Any] = dict(zip(_TENSORS, tensors, strict=True))
        dims = dict(zip(_TENSORS, tensor_dims, strict=True))
        if dims["weight"] is not None:
            raise ValueError("vmap over the class weights of entmax_loss is not supported.")
        size = info.batch_size
        rows = given["scores"].shape[0 if dims["scores"] != 0 else 1]

        def flat(name: str) -> Tensor | None:
            x: Tensor | None = given[name]
            dim = dims[name]
            if x is None:
                return None
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.reshape(size * rows, *x.shape[2:])

        alpha = given["alpha"]
        if dims["alpha"] is not None or alpha.dim():
            per_row = alpha[None] if dims["alpha"] is None else alpha.movedim(dims["alpha"], 0)
            alpha = per_row.reshape(per_row.shape[0], -1).expand(size, rows).reshape(-1, 1)
        merged = {
            **given,
            "scores": flat("scores"),
            "alpha": alpha,
            "index": flat("index"),
            "probability": flat("probability"),
        }
        found = _FunctorchLoss.apply(problem, *map(merged.get, _TENSORS), lowest, backend)
        outputs = tuple(x.reshape(size, rows, *x.shape[1:]) for x in found)
        return outputs, (0,) * len(outputs)


def _from_arguments(arguments: tuple[Any, ...]) -> LossProblem:
    """Rebuild the problem from the arguments of a registered operator."""
    return LossProblem(**dict(zip(_FIELDS, arguments, strict=True)))


_SCHEMA = f"{schema_of(LossProblem)}, float lowest, str backend"


@torch.library.custom_op(
    "adasparse::entmax_loss", mutates_args=(), schema=f"({_SCHEMA}) -> (Tensor, Tensor[])"
)
def _loss_op(*arguments: Any) -> tuple[Tensor, list[Tensor]]:
    *values, lowest, backend = arguments
    loss, saved = _forward(_from_arguments(tuple(values)), lowest, backend)
    return loss, list(vars(saved).values())


@_loss_op.register_fake
def _(*arguments: Any) -> tuple[Tensor, list[Tensor]]:
    *values, _, backend = arguments
    problem = _from_arguments(tuple(values))
    loss = problem.scores.new_empty(problem.scores.shape[0], dtype=_row_dtype(problem.scores))
    saved = choose_kernels(backend, problem.scores).empty_loss_saved(problem)
    return loss, list(vars(saved).values())


@torch.library.custom_op(
    "adasparse::entmax_loss_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor[] saved, bool with_alpha, {_SCHEMA}) -> (Tensor, Tensor)",
)
def _loss_backward_op(
    grad: Tensor, saved: list[Tensor], with_alpha: bool, *arguments: Any
) -> tuple[Tensor, Tensor]:
    *values, _, backend = arguments
    problem = _from_arguments(tuple(values))
    saved_type = type(choose_kernels(backend, problem.scores).empty_loss_saved(problem))
    typed = from_tensors(saved_type, saved)
    grad_scores, grad_alpha = _backward(problem, typed, grad, with_alpha, backend)
    return grad_scores, torch.zeros_like(problem.alpha) if grad_alpha is None else grad_alpha


@_loss_backward_op.register_fake
def _(
    grad: Tensor, saved: list[Tensor], with_alpha: bool, *arguments: Any
) -> tuple[Tensor, Tensor]:
    *values, _, _ = arguments
    problem = _from_arguments(tuple(values))
    grad_scores = torch.empty_like(problem.scores, memory_format=torch.contiguous_format)
    return grad_scores, torch.empty_like(problem.alpha)


def _op_setup_context(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, list[Tensor]]
) -> None:
    values = dict(zip((*_FIELDS, "lowest", "backend"), inputs, strict=True))
    ctx.save_for_backward(*(values.pop(name) for name in _TENSORS), *output[1])
    ctx.options = values


def _op_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    stored = iter(ctx.saved_tensors)
    tensors = {name: next(stored) for name in _TENSORS}
    *needed, _, _ = ctx.needs_input_grad
    needs = dict(zip(_FIELDS, needed, strict=True))
    grad_scores, grad_alpha = _loss_backward_op(
        grad, list(stored), needs["alpha"], **tensors, **ctx.options
    )
    gradients = {"scores": grad_scores, "alpha": grad_alpha}
    return *(gradients.get(name) if needs[name] else None for name in _FIELDS), None, None


_loss_op.register_autograd(_op_backward, setup_context=_op_setup_context)


def row_losses(problem: LossProblem, *, lowest: float = 1.0, backend: str = "auto") -> Tensor:
    """Return the loss of each row ``(rows,)`` for every alpha from ``lowest`` up.

    Args:
        problem: With alpha of rank 0 or ``(rows, 1)``, in the dtypes of the caller.
        lowest: Lower bound of alpha, above 0.
        backend: A name that ``check_backend`` returned.

    Returns:
        In float32, or float64 for float64 scores.
    """
    tensors = tensors_of(problem, _TENSORS)
    if needs_registered_op(*tensors):
        if torch.onnx.is_in_onnx_export():
            raise NotImplementedError(
                "ONNX has no form of entmax_loss; export the model without its loss."
            )
        name = choose_backend(backend, problem.scores).name
        loss: Tensor = _loss_op(**values_of(problem), lowest=lowest, backend=name)[0]
        return loss
    if is_transformed():
        options = with_tensors(problem, _NO_TENSORS)
        found: tuple[Tensor, ...] = _FunctorchLoss.apply(options, *tensors, lowest, backend)
        return found[0]
    eager: Tensor = _EagerLoss.apply(problem, *tensors, lowest, backend)
    return eager
