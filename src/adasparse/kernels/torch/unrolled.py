"""entmax as a fixed sequence of PyTorch operations, for exporters that know no others.

No operation depends on a value, so that one graph serves inputs of every length. An alpha that is
known when the graph is made selects the cheapest solver: softmax at 1, sorting at 1.5 and 2,
Newton's method below 2, bisection above. An alpha that is an input or a parameter takes Newton's.
"""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from adasparse.kernels.torch.rows import or_one
from adasparse.kernels.torch.steep import last_in_support

#: Newton steps that suffice for a million scores, by the digits of the dtype. From an alpha of 1 to
#: 2 they approach the root from one side: 12 reach 1e-10 for 20,000 scores of any distribution.
_STEPS = {torch.float32: 14, torch.float64: 18}
#: Halvings of a place among fewer than 2^31 sorted scores, and of the last weight.
_PLACE_STEPS, _WEIGHT_STEPS = 31, 50
#: Below this excess over 1 powers of weights lose digits that their logarithms keep.
_SMALLEST_POWER = 0.05


def known_alpha(alpha: Tensor) -> float | None:
    """Return the value of an alpha that is a constant of the traced graph, else None."""
    if torch.compiler.is_dynamo_compiling():
        return None
    constant = getattr(alpha, "constant", None)
    if not isinstance(constant, Tensor) or constant.numel() != 1:
        return None
    with unset_fake_temporarily():  # the constant of a fake tensor is real
        return constant.item()


def entmax_unrolled(scores: Tensor, alpha: Tensor) -> Tensor:
    """Return the weights of ``(..., n)`` in the dtype of ``scores``.

    Args:
        scores: ``-inf`` marks a masked entry.
        alpha: Broadcastable to ``(..., 1)``. One that is not constant must be at most 2, and gives
            NaN above.
    """
    known = known_alpha(alpha)
    is_wide = scores.dtype == torch.float64 or (known is not None and known > 2)
    wide = scores.to(torch.float64 if is_wide else torch.float32)
    top = wide.amax(-1, keepdim=True)
    bad = wide.isnan().any(-1, keepdim=True) | (top == torch.inf)
    masked = wide == -torch.inf
    z = wide - torch.where(top.abs() < torch.inf, top, 0.0)
    if known is None:
        eps = (alpha - 1).to(wide)
        weights = _normalized(_any_gentle(z, masked, eps), eps)
        bad = bad | (alpha > 2)
    elif known > 2:
        weights = _steep(torch.where(masked, -1e30, z), known - 1)
        weights = weights / weights.sum(-1, keepdim=True)
    else:
        weights = _normalized(_gentle(z, masked, known - 1), known - 1)
    return torch.where(bad, torch.nan, torch.where(masked, 0.0, weights)).to(scores.dtype)


def _normalized(weights: Tensor, eps: float | Tensor) -> Tensor:
    """Spread what the sum lacks over the weights as a shift of the normalizer would.

    That shift may be far below the rounding of the normalizer itself.
    """
    for _ in range(2):  # the first may move the edge of the support
        slopes = torch.where(weights > 0, weights ** (1 - eps), 0.0)
        lacking = (1 - weights.sum(-1, keepdim=True)) / or_one(slopes.sum(-1, keepdim=True))
        weights = (weights + slopes * lacking).clamp(min=0.0)
    return weights


def _gentle(z: Tensor, masked: Tensor, eps: float) -> Tensor:
    """Solve for one known ``eps = alpha - 1`` from 0 to 1; the largest ``z`` of a row is 0."""
    if eps == 0:
        return z.exp()
    if eps == 1:
        return _sparsemax(z.clamp(min=-1.0))
    if eps == 0.5:
        return _entmax15((z / 2).clamp(min=-1.0))
    if eps < _SMALLEST_POWER:
        return _any_gentle(z, masked, torch.full_like(z[..., :1], eps))
    # With y = 1 + eps z: p = (y - b)^(1 / eps), and p^(1 - eps) is the slope.
    y, b = (1 + eps * z).clamp(min=0.0), torch.zeros_like(z[..., :1])
    for _ in range(_STEPS[z.dtype]):
        t = (y - b).clamp(min=0.0)
        slopes = t ** (1 / eps - 1)
        mass = (slopes * t).sum(-1, keepdim=True)
        b = b + (mass - mass ** (1 - eps)) / or_one(slopes.sum(-1, keepdim=True))
    return (y - b).clamp(min=0.0) ** (1 / eps)


def _log1p(x: Tensor) -> Tensor:
    """``log(1 + x)`` without losing the digits of a small x, as ONNX's own translation does."""
    y = 1 + x
    return torch.where(y == 1, x, x * y.log() / or_one(y - 1))


def _expm1(x: Tensor) -> Tensor:
    """``exp(x) - 1``, likewise."""
    y = x.exp()
    return torch.where(y == 1, x, x * (y - 1) / or_one(y.log()))


def _any_gentle(z: Tensor, masked: Tensor, eps: Tensor) -> Tensor:
    """Solve for any eps from 0 to 1, one per row: ``p = exp(log1p(eps u) / eps)``, u = z - c."""
    z = torch.where(masked, 0.0, z)
    is_softmax, divisor = eps == 0, or_one(eps)

    def at(c: Tensor) -> tuple[Tensor, Tensor]:
        u = z - c
        x = eps * u
        is_inside = (x > -1) & ~masked
        x = torch.where(is_inside, x, 0.0)
        exponent = torch.where(is_softmax, u, _log1p(x) / divisor)
        return torch.where(is_inside, exponent.exp(), 0.0), 1 + x

    c = torch.zeros_like(z[..., :1])
    for _ in range(_STEPS[z.dtype]):
        p, t = at(c)
        mass = or_one(p.sum(-1, keepdim=True))
        log_mass = mass.log()
        step = torch.where(is_softmax, log_mass, -_expm1(-eps * log_mass) / divisor)
        c = c + step * mass / or_one((p / t).sum(-1, keepdim=True))
    return at(c)[0]


def _sparsemax(z: Tensor) -> Tensor:
    """Solve for an alpha of 2; z is at least -1, below which no score is in the support."""
    ordered = z.sort(-1, descending=True).values
    place = torch.ones_like(ordered).cumsum(-1)
    tau = (ordered.cumsum(-1) - 1) / place
    # Rounded, tau must not cut off small weights, of which there may be many; _normalized takes the
    # excess away again.
    return (z - _at_edge(tau, ordered) + 16 * torch.finfo(z.dtype).eps).clamp(min=0.0)


def _entmax15(x: Tensor) -> Tensor:
    """Solve for an alpha of 1.5; x is half the score, at least -1."""
    ordered = x.sort(-1, descending=True).values
    place = torch.ones_like(ordered).cumsum(-1)
    mean = ordered.cumsum(-1) / place
    variance = ordered.square().cumsum(-1) / place - mean.square()
    tau = mean - (1 / place - variance).clamp(min=0.0).sqrt()
    return (x - _at_edge(tau, ordered)).clamp(min=0.0).square()


def _at_edge(tau: Tensor, ordered: Tensor) -> Tensor:
    """Return the threshold of the support, which is the largest that its last score reaches."""
    size = (tau <= ordered).to(torch.int64).sum(-1, keepdim=True)
    return tau.gather(-1, (size - 1).clamp(min=0))


def _steep(scores: Tensor, eps: float) -> Tensor:
    """Solve for one known eps above 1, as ``steep.py`` does, with bisection for the last weight."""
    smallest, mass = last_in_support(scores, torch.full_like(scores[..., :1], eps), _PLACE_STEPS)
    z = scores - smallest
    is_smallest = z == 0

    def weights_at(w: Tensor) -> Tensor:
        base = w**eps
        power = (eps * z.clamp(min=0.0) + base) ** (1 / eps)
        return torch.where(z > 0, power, torch.where(is_smallest, w, 0.0))

    low = torch.zeros_like(mass)
    high = (1 - mass) / is_smallest.to(z.dtype).sum(-1, keepdim=True)
    for _ in range(_WEIGHT_STEPS):
        middle = (low + high) / 2
        is_light = weights_at(middle).sum(-1, keepdim=True) <= 1
        low, high = torch.where(is_light, middle, low), torch.where(is_light, high, middle)
    return weights_at(low)
