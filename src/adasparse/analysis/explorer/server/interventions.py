"""Heads that are changed for one run of a model, while the model stays as it is."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from adasparse.analysis.recording.storage import ModelHeader
from adasparse.integrations.calls import AttentionCall, steering

#: The exponents that may be asked for.
LEAST_ALPHA, MOST_ALPHA = 1.0, 4.0


class RequestError(ValueError):
    """A request that cannot be answered; the message is for whoever sent it."""


@dataclass(frozen=True, kw_only=True)
class HeadChanges:
    """Changes of heads, by the name of the attention module; heads are counted from 0.

    Args:
        alpha: Exponents by head.
        off: Heads that give nothing.
    """

    alpha: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    off: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def check(self, header: ModelHeader) -> None:
        """Raise a RequestError that names the first thing that the model does not have."""
        sizes = {
            name: len(alpha)
            for kind in header.kinds
            for name, alpha in zip(header.modules[kind], header.alpha[kind], strict=True)
        }
        for what, modules in (("alpha", self.alpha), ("off", self.off)):
            for name, heads in modules.items():
                if name not in sizes:
                    raise RequestError(
                        f"{what} must name attention modules of the model, such as "
                        f"{next(iter(sizes))!r}; got {name[:80]!r}."
                    )
                unknown = [head for head in heads if not 0 <= head < sizes[name]]
                if unknown:
                    raise RequestError(
                        f"{what} must name heads 0 to {sizes[name] - 1} of {name}; "
                        f"got {unknown[0]}."
                    )
        for heads in self.alpha.values():
            for alpha in heads.values():
                if not LEAST_ALPHA <= alpha <= MOST_ALPHA:
                    raise RequestError(
                        f"alpha must be from {LEAST_ALPHA:g} to {MOST_ALPHA:g}; got {alpha}."
                    )

    def header(self, header: ModelHeader) -> ModelHeader:
        """Return ``header`` with the exponents that hold now."""
        alpha = {
            kind: tuple(
                tuple(self.alpha.get(name, {}).get(i, x) for i, x in enumerate(heads))
                for name, heads in zip(header.modules[kind], header.alpha[kind], strict=True)
            )
            for kind in header.kinds
        }
        return replace(header, alpha=alpha)

    def applied(self, model: nn.Module) -> AbstractContextManager[None]:
        """Have the model attend so meanwhile, in this thread alone."""
        if not self.alpha and not self.off:
            return nullcontext()
        return steering(self._change(model))

    def _change(self, model: nn.Module) -> Callable[[AttentionCall], AttentionCall]:
        alpha = {model.get_submodule(name): heads for name, heads in self.alpha.items()}
        off = {model.get_submodule(name): heads for name, heads in self.off.items()}

        def change(call: AttentionCall) -> AttentionCall:
            if call.module in alpha:
                call = replace(call, alpha=_with_alpha(call, alpha[call.module]))
            if off.get(call.module):
                call = _without_heads(call, sorted(off[call.module]))
            return call

        return change


def _with_alpha(call: AttentionCall, heads: Mapping[int, float]) -> Tensor:
    """Return the exponents ``(h,)`` of a call, some of them replaced."""
    device = call.query.device
    alpha = torch.as_tensor(call.alpha, dtype=torch.float32, device=device).reshape(-1)
    alpha = alpha.expand(call.query.shape[1]).clone()
    for head, value in heads.items():
        alpha[head] = value
    return alpha


def _without_heads(call: AttentionCall, heads: list[int]) -> AttentionCall:
    """Give heads values of zero, for which heads that share values get their own."""
    shared = call.query.shape[1] // call.value.shape[1]
    value = call.value.repeat_interleave(shared, 1).index_fill(
        1, torch.tensor(heads, device=call.value.device), 0.0
    )
    return replace(call, key=call.key.repeat_interleave(shared, 1), value=value)
