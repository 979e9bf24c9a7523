"""The exponents of heads as a learned parameter."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from adasparse.functional.arguments import with_bound

AlphaInit = float | Literal["spread", "random"] | Sequence[float] | Tensor


class LearnedAlpha(nn.Module):
    """One exponent per head, learned inside a range: ``low + (high - low) * sigmoid(alpha_logit)``.

    The gradient is exact and not zero also where alpha is so close to an end of its range that it
    rounds to it; only a logit beyond ±87 has none left. The parameter stays in float32 when the
    module is cast to half precision, where steps of the size of a learning rate would be lost.

    Args:
        num_heads: Number of exponents; 1 is shared by any number of heads.
        init: Initial alpha: one number for all heads, one for each, ``"spread"`` evenly over
            the range, or ``"random"``, drawn uniformly from it. Numbers lie strictly inside.
        low: Lower end of the range, at least 1.
        high: Upper end.
        device: Device of the parameter.

    Shape:
        Nothing in, ``(h,)`` out.

    Example:
        >>> LearnedAlpha(4, init="spread")()
        tensor([1.1250, 1.3750, 1.6250, 1.8750], grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        init: AlphaInit = 1.5,
        low: float = 1.0,
        high: float = 2.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1; got {num_heads}.")
        if not 1 <= low < high < math.inf:
            raise ValueError(f"low and high must satisfy 1 <= low < high; got {low} and {high}.")
        self.num_heads = num_heads
        self.low = float(low)
        self.high = float(high)
        self.init = self._check_init(init)
        self.alpha_logit = nn.Parameter(torch.empty(num_heads, dtype=torch.float32, device=device))
        self.reset_parameters()

    def _check_init(self, init: AlphaInit) -> str | tuple[float, ...]:
        if isinstance(init, str):
            if init not in ("spread", "random"):
                raise ValueError(
                    f'init must be a number, one per head, "spread" or "random"; got {init!r}.'
                )
            return init
        values = init.tolist() if isinstance(init, Tensor) else init
        numbers = tuple(values) if isinstance(values, Sequence) else (values,) * self.num_heads
        if len(numbers) != self.num_heads:
            raise ValueError(
                f"init must be one number or one for each of {self.num_heads} heads; "
                f"got {len(numbers)}."
            )
        outside = [x for x in numbers if not self.low < x < self.high]
        if outside:
            raise ValueError(
                f"init must lie strictly between low={self.low} and high={self.high}; "
                f"got {outside[0]}. For an alpha that is not learned, pass a number instead."
            )
        return tuple(float(x) for x in numbers)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Go back to ``init``; a random one is drawn anew."""
        if self.init == "random":
            self.alpha_logit.uniform_().logit_(eps=1e-6)
            return
        if self.init == "spread":
            shares = [(head + 0.5) / self.num_heads for head in range(self.num_heads)]
        else:
            shares = [(float(x) - self.low) / (self.high - self.low) for x in self.init]
        logits = [math.log(share) - math.log1p(-share) for share in shares]
        self.alpha_logit.copy_(torch.tensor(logits, dtype=torch.float64))

    def forward(self) -> Tensor:
        """Return alpha ``(h,)`` in float32, or float64 if the module was cast to it."""
        logit: Tensor = self.alpha_logit
        if logit.dtype in (torch.float16, torch.bfloat16):  # by load_state_dict(assign=True)
            logit = logit.float()
        # Not sigmoid, whose gradient p * (1 - p) cancels to zero near 1; this one is exact.
        alpha = self.low + (self.high - self.low) * logsigmoid(logit).exp()
        return with_bound(alpha, self.high)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LearnedAlpha":
        """Move and cast as other modules do, except to half precision."""

        def moved(x: Tensor) -> Tensor:
            y = fn(x)
            return x.to(y.device) if y.dtype in (torch.float16, torch.bfloat16) else y

        super()._apply(moved, recurse)
        return self

    def extra_repr(self) -> str:
        """Show the settings."""
        init = self.init
        if not isinstance(init, str):
            init = str(init[0]) if len(set(init)) == 1 else str(init)
        return f"{self.num_heads}, init={init}, low={self.low}, high={self.high}"


def as_alpha(
    alpha: float | LearnedAlpha | None, num_heads: int, device: torch.device | str | None = None
) -> float | LearnedAlpha:
    """Return the alpha that a module keeps: a number, or exponents to learn, made here if None."""
    if alpha is None:
        return LearnedAlpha(num_heads, device=device)
    if isinstance(alpha, LearnedAlpha):
        if alpha.num_heads not in (1, num_heads):
            raise ValueError(
                f"alpha must have 1 or {num_heads} heads, as many as the attention; "
                f"got {alpha.num_heads}."
            )
        return alpha
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise TypeError(f"alpha must be a number or LearnedAlpha; got {type(alpha).__name__}.")
    if not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite; got {alpha}.")
    return float(alpha)


def alpha_value(alpha: float | LearnedAlpha) -> float | Tensor:
    """Return the alpha argument of the functional layer."""
    return alpha() if isinstance(alpha, LearnedAlpha) else alpha
