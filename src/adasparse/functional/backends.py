"""The registry of backends, and the choice among them."""

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

from adasparse.kernels import AttentionProblem, Kernels, cpu
from adasparse.kernels import torch as torch_kernels
from adasparse.kernels import triton as triton_kernels  # imports Triton when it is used

#: Made of PyTorch operations that are differentiable any number of times; for higher derivatives.
differentiable_kernels = torch_kernels

AUTO = "auto"
_DEPRECATED = {"native": "cpu", "plain": "torch"}


def _always() -> str:
    return ""


#: Attention, or the scores of rows.
Problem = AttentionProblem | Tensor


def _anything(problem: Problem) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Backend:
    """A module of kernels and the conditions of its use.

    Args:
        name: Value of the ``backend`` argument that selects it.
        load: Returns the module; called only where ``missing_reason`` returns nothing.
        devices: Device types it supports; None for all.
        missing_reason: Returns why it cannot be used on this machine, or an empty string.
        unsupported: Returns what it does not support in attention, or in the scores of rows, or
            None.
    """

    name: str
    load: Callable[[], Kernels]
    devices: Collection[str] | None = None
    missing_reason: Callable[[], str] = _always
    unsupported: Callable[[Problem], str | None] = _anything

    def reason_against(self, device: str, problem: Problem | None = None) -> str:
        """Return why it cannot be used, or an empty string."""
        if self.devices is not None and device not in self.devices:
            return f"it needs tensors on {' or '.join(self.devices)}; got a tensor on {device}"
        reason = self.missing_reason()
        if reason or problem is None:
            return reason
        return self.unsupported(problem) or ""


def _cpu_missing_reason() -> str:
    if cpu.is_available():
        return ""
    return f"the compiled kernels are missing: {cpu.missing_reason}"


#: By name; "auto" takes the first that can be used, and "torch" if none of the others can.
BACKENDS: dict[str, Backend] = {
    "cpu": Backend(
        name="cpu",
        load=lambda: cpu,
        devices=("cpu",),
        missing_reason=_cpu_missing_reason,
    ),
    "triton": Backend(
        name="triton",
        load=lambda: cast(Kernels, triton_kernels),  # its functions are loaded on first use
        devices=triton_kernels.devices(),
        missing_reason=triton_kernels.why_missing,
        unsupported=triton_kernels.unsupported,
    ),
    "torch": Backend(name="torch", load=lambda: torch_kernels),
}


def register_backend(
    name: str,
    kernels: Kernels,
    *,
    devices: Collection[str] | None = None,
    missing_reason: Callable[[], str] = _always,
    unsupported: Callable[[Problem], str | None] = _anything,
) -> None:
    """Make ``backend=name`` select ``kernels``.

    ``"auto"`` considers backends in the order of registration, PyTorch alone last; a new one
    therefore does not replace those that support its devices already.

    Args:
        name: A new name.
        kernels: A module, or any object, with the functions of ``adasparse.kernels.Kernels``.
        devices: Device types it supports; None for all.
        missing_reason: Returns why it cannot be used on this machine, or an empty string.
        unsupported: Returns what it does not support in attention, or in the scores of rows, or
            None.
    """
    if name in (AUTO, *BACKENDS, *_DEPRECATED):
        raise ValueError(f"name must not be one of {backend_names()}; got {name!r}.")
    fallback = BACKENDS.pop("torch")
    BACKENDS[name] = Backend(
        name=name,
        load=lambda: kernels,
        devices=devices,
        missing_reason=missing_reason,
        unsupported=unsupported,
    )
    BACKENDS["torch"] = fallback


def unregister_backend(name: str) -> None:
    """Forget what ``register_backend`` added under ``name``."""
    if name not in BACKENDS or name in _BUILT_IN:
        added = sorted(BACKENDS.keys() - _BUILT_IN)
        raise ValueError(f"name must be one of the registered backends {added}; got {name!r}.")
    del BACKENDS[name]


_BUILT_IN = frozenset(BACKENDS)


def backend_names() -> list[str]:
    """Return the values that ``backend`` accepts, sorted."""
    return sorted((AUTO, *BACKENDS))


def check_backend(backend: str, *, stacklevel: int = 3) -> str:
    """Return the name of a backend, or raise; the names of version 0.1 warn.

    Args:
        backend: Argument of the caller.
        stacklevel: Frame to blame in the warning, counted from here.
    """
    is_name = isinstance(backend, str)
    if is_name and (backend == AUTO or backend in BACKENDS):
        return backend
    if not is_name or backend not in _DEPRECATED:
        raise ValueError(f"backend must be one of {backend_names()}; got {backend!r}.")
    current = _DEPRECATED[backend]
    if not torch.compiler.is_compiling():
        warnings.warn(
            f"backend={backend!r} is deprecated; use backend={current!r}.",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
    return current


_has_warned = False


def choose_backend(backend: str, tensor: Tensor, problem: Problem | None = None) -> Backend:
    """Return the backend for a tensor and, if given, a problem.

    Args:
        backend: A name that ``check_backend`` returned.
        tensor: Decides by its device.
        problem: Attention, or scores of rows, that the backend must support.

    Raises:
        RuntimeError: If ``backend`` is not ``"auto"`` and cannot be used.
    """
    device = "cpu" if tensor.is_cpu else tensor.device.type
    if backend != AUTO:
        chosen = BACKENDS[backend]
        if reason := chosen.reason_against(device, problem):
            raise RuntimeError(
                f"backend={backend!r} cannot be used: {reason}. backend='auto' takes one that can."
            )
        return chosen
    for candidate in BACKENDS.values():
        reason = candidate.reason_against(device, problem)
        if not reason:
            return candidate
        if candidate.devices is not None and device in candidate.devices:
            _warn_once(candidate, reason)
    raise AssertionError("torch supports every device")


def _warn_once(skipped: Backend, reason: str) -> None:
    global _has_warned
    if _has_warned or torch.compiler.is_compiling():
        return
    _has_warned = True
    warnings.warn(
        f"adasparse cannot use its backend {skipped.name!r} ({reason}) and falls back to a slower "
        "one. Run 'adasparse doctor' for details.",
        RuntimeWarning,
        stacklevel=5,
    )


def choose_kernels(backend: str, scores: Tensor) -> Kernels:
    """Return the kernels for the scores of rows."""
    return choose_backend(backend, scores, scores).load()


def explain_choice(device: str) -> tuple[str, dict[str, str]]:
    """Return the backend that ``"auto"`` takes for a device type, and why not those before it."""
    against: dict[str, str] = {}
    for candidate in BACKENDS.values():
        reason = candidate.reason_against(device)
        if not reason:
            return candidate.name, against
        against[candidate.name] = reason
    raise AssertionError("torch supports every device")


def can_read_values(*tensors: Tensor | None) -> bool:
    """Whether values may decide what to do: on the CPU, in eager mode, of ordinary tensors.

    Elsewhere reading them would stall a device or break a graph.
    """
    return not (
        needs_registered_op(*tensors)
        or is_transformed()
        or any(x is not None and not x.is_cpu for x in tensors)
    )


_ORDINARY_TYPES = frozenset({Tensor, torch.nn.Parameter, type(None)})


def needs_registered_op(*tensors: Tensor | None) -> bool:
    """Whether a call must go through the dispatcher.

    That is while compiling or tracing, which see nothing else, and for tensor subclasses.
    """
    if torch.compiler.is_compiling() or is_tracing():
        return True
    return not _ORDINARY_TYPES.issuperset(map(type, tensors))


def is_transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_batched(grad: Tensor) -> bool:
    """Whether a gradient is a batch of them, as ``is_grads_batched`` and ``vmap`` make it.

    Such a tensor has no memory that kernels could read; registered operators take its parts.
    """
    functorch = torch._C._functorch
    return functorch.is_batchedtensor(grad) or functorch.is_legacy_batchedtensor(grad)


def register_loop(operator: CustomOpDef) -> None:
    """Have ``vmap`` call an operator that returns a tuple once for each part of a batch."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        parts = [
            operator(
                *(
                    x if dim is None else x.select(dim, i)
                    for x, dim in zip(arguments, in_dims, strict=True)
                )
            )
            for i in range(info.batch_size)
        ]
        outputs = tuple(map(torch.stack, zip(*parts, strict=True)))
        return outputs, (0,) * len(outputs)

    operator.register_vmap(rule)


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd records what is done with these tensors."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
