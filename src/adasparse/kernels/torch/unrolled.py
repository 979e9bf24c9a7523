"""entmax as a fixed sequence of PyTorch operations, for exporters that know no others.

No operation depends on a value, so that one graph supports inputs of every length. An alpha that
is known when the graph is made selects the cheapest solver: softmax at 1, sorting at 1.5 and 2,
Newton's method up to 2, which it also is for a tensor that is known to stay there. Any other alpha
takes bisection.
"""

import math

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from adasparse.kernels.torch.rows import or_one

#: Newton steps that suffice for a million scores, by the digits of the dtype. From an alpha of 1 to
#: 2 they approach the root from one side: 12 reach 1e-10 for 20,000 scores of any distribution.
_STEPS = {torch.float32: 14, torch.float64: 18}
#: Halvings of the logarithm of the largest weight, for float64 scores and for others. They must
#: tell scores on the two sides of the edge apart: 44 halvings leave 8e-13 for a million scores.
_HALVINGS, _FEWER_HALVINGS = 53, 44
#: Newton steps for the smallest weight, from a value that halving has found.
_REFINEMENTS = 4
#: Below this excess over 1 powers of weights lose digits that their logarithms keep.
_SMALLEST_POWER = 0.05
#: Halving treats a smaller excess as this one, which moves the largest weight by less than 1e-8.
_SMALLEST_EXCESS = 1e-8
#: Bound of a power, which is multiplied by zeros; exporters pass constants through float32.
_LARGEST = 1e38


def known_alpha(alpha: Tensor) -> float | None:
    """Return the value of an alpha that is a constant of the traced graph, else None."""
    if torch.compiler.is_dynamo_compiling():
        return None
    constant = getattr(alpha, "constant", None)
    if not isinstance(constant, Tensor) or constant.numel() != 1:
        return None
    with unset_fake_temporarily():  # the constant of a fake tensor is real
        return constant.item()


def entmax_unrolled(scores: Tensor, alpha: Tensor, highest: float | None = None) -> Tensor:
    """Return the weights of ``(..., n)`` in the dtype of ``scores``.

    Args:
        scores: ``-inf`` marks a masked entry.
        alpha: At least 1, broadcastable to ``(..., 1)``.
        highest: Bound of alpha that holds whatever its values; None if there is none.
    """
    known = known_alpha(alpha)
    is_simple = known is not None and (known == 1 or 1 + _SMALLEST_POWER <= known <= 2)
    is_gentle = is_simple or (known or highest or math.inf) <= 2
    is_wide = scores.dtype == torch.float64 or not is_gentle
    wide = scores.to(torch.float64 if is_wide else torch.float32)
    top = wide.amax(-1, keepdim=True)
    bad = wide.isnan().any(-1, keepdim=True) | (top == torch.inf)
    masked = wide == -torch.inf
    z = wide - torch.where(top.abs() < torch.inf, top, 0.0)
    if known is not None and is_simple:
        weights = _normalized(_gentle(z, known - 1), known - 1)
    elif is_gentle:
        eps = (alpha.double() - 1).to(z)
        weights = _normalized(_any_gentle(z, masked, eps), eps)
    else:
        halvings = _HALVINGS if scores.dtype == torch.float64 else _FEWER_HALVINGS
        weights = _bisected(z, masked, alpha.to(z) - 1, halvings)
    return torch.where(bad, torch.nan, torch.where(masked, 0.0, weights)).to(scores.dtype)


def _power(x: Tensor, exponent: float | Tensor) -> Tensor:
    """``x ** exponent``; of tensors in float64, which onnxruntime is slow at, by logarithms."""
    return (exponent * x.log()).exp() if isinstance(exponent, Tensor) else x**exponent


def _normalized(weights: Tensor, eps: float | Tensor) -> Tensor:
    """Spread what the sum lacks over the weights as a shift of the normalizer would.

    That shift may be far below the rounding of the normalizer itself.
    """
    for _ in range(2):  # the first may move the edge of the support
        slopes = torch.where(weights > 0, _power(weights, 1 - eps), 0.0)
        lacking = (1 - weights.sum(-1, keepdim=True)) / or_one(slopes.sum(-1, keepdim=True))
        weights = (weights + slopes * lacking).clamp(min=0.0)
    return weights


def _gentle(z: Tensor, eps: float) -> Tensor:
    """Solve for one known ``eps = alpha - 1`` up to 1; the largest ``z`` of a row is 0."""
    if eps == 0:
        return z.exp()
    if eps == 1:
        return _sparsemax(z.clamp(min=-1.0))
    if eps == 0.5:
        return _entmax15((z / 2).clamp(min=-1.0))
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


def _bisected(z: Tensor, masked: Tensor, eps: Tensor, halvings: int) -> Tensor:
    """Solve for any ``eps = alpha - 1`` from 0 up, one per row; the largest ``z`` of a row is 0.

    With L the logarithm of the largest weight, ``p = exp(L + log(1 - eps |z| exp(-eps L)) / eps)``
    where the inner logarithm exists, else 0. L lies between that of uniform weights and 0.
    """
    power = eps.clamp(min=_SMALLEST_EXCESS)
    depth = torch.where(masked, torch.inf, -z * power)
    half = (~masked).to(z.dtype).sum(-1, keepdim=True).clamp(min=1.0).log() / 2

    def margin(log_top: Tensor) -> Tensor:
        """Distance of each score from the edge, as a share of that of the largest."""
        return (1 - depth * (-power * log_top).exp().clamp(max=_LARGEST)).clamp(min=0.0)

    log_top = -half
    for _ in range(halvings):
        half = half / 2
        ratios = (margin(log_top).log() / power).exp()
        is_light = ratios.sum(-1, keepdim=True) < (-log_top).exp()
        log_top = log_top + torch.where(is_light, half, -half)
    gentle = _normalized(_at_top(z, masked, eps, log_top), eps)
    # From above, so that no score of the support is missing.
    log_top = (log_top + 2 * half).clamp(max=0.0)
    ratios = (margin(log_top).log() / power).exp()
    return torch.where(eps > 1, _refined(z, ratios * log_top.exp(), power), gentle)


def _at_top(z: Tensor, masked: Tensor, eps: Tensor, log_top: Tensor) -> Tensor:
    """Return the weights of an eps up to 1 from the logarithm of the largest, to the last digit."""
    z = torch.where(masked, 0.0, z)
    is_softmax, divisor = eps == 0, or_one(eps)
    u = z + torch.where(is_softmax, log_top, _expm1(eps * log_top) / divisor)
    x = eps * u
    is_inside = (x > -1) & ~masked
    x = torch.where(is_inside, x, 0.0)
    exponent = torch.where(is_softmax, u, _log1p(x) / divisor)
    return torch.where(is_inside, exponent.exp(), 0.0)


def _refined(z: Tensor, weights: Tensor, eps: Tensor) -> Tensor:
    """Return the weights of an eps above 1 from approximate ones that sum to at least one.

    As ``steep.py`` does, solves for the smallest weight w, with scores counted from its own.
    """
    is_inside = weights > 0
    gap = z - torch.where(is_inside, z, torch.inf).amin(-1, keepdim=True)
    is_smallest = gap == 0
    gap = torch.where(is_inside, eps * gap, 0.0)
    w = torch.where(is_smallest, weights, 0.0).amax(-1, keepdim=True)

    def at(w: Tensor) -> Tensor:
        others = torch.where(is_inside, _power(gap + _power(w, eps), 1 / eps), 0.0)
        return torch.where(is_smallest, w, others)

    for _ in range(_REFINEMENTS):
        p = at(w)
        slopes = torch.where(is_smallest, 1.0, _power(w / or_one(p), eps - 1))
        slope = torch.where(is_inside, slopes, 0.0).sum(-1, keepdim=True)
        w = (w - (p.sum(-1, keepdim=True) - 1) / or_one(slope)).clamp(min=0.0)
    p = at(w)
    return p / or_one(p.sum(-1, keepdim=True))


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
