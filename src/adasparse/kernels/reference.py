"""The float64 oracle: entmax by bisection, with the gradients written out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.kernels.packed import is_packed, joined_gradients, offsets_of, unpacked
from adasparse.kernels.problem import (
    AttentionGradients,
    AttentionProblem,
    LossProblem,
    SparseRows,
    tensor_names,
)
from adasparse.kernels.torch.scores import dropout_factors


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedRows:
    """All weights, in the shape of the scores, with those of sinks in the last column.

    Those of a packed batch lie one sequence after another in one dimension.
    """

    weights: Tensor


def entmax_forward(scores: Tensor, alpha: Tensor) -> Tensor:
    """Bisect for the normalizer until the interval holds no other number.

    Args:
        scores: ``(rows, n)`` in float64; ``-inf`` marks a masked entry.
        alpha: One value or ``(rows,)``, any value above 0.

    Returns:
        ``(rows, n)``. Fully masked rows are zero; NaN or ``+inf`` makes its row NaN.
    """
    if scores.dtype != torch.float64:
        raise TypeError(f"the reference works in float64; got {scores.dtype}.")
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    eps = (alpha.double().reshape(-1, 1) - 1).expand(len(scores), 1)
    top = scores.amax(-1, keepdim=True)
    bad = scores.isnan().any(-1, keepdim=True) | top.isposinf()
    clean = torch.where(bad | top.isneginf(), 0.0, scores)
    is_steep = eps[:, 0] > 1
    weights = torch.empty_like(clean)
    for which, solve in ((is_steep, _steep), (~is_steep, _gentle)):
        if bool(which.any()):
            weights[which] = solve(clean[which], eps[which])
    total = weights.sum(-1, keepdim=True)
    weights = torch.where(top.isneginf(), 0.0, weights / torch.where(total > 0, total, 1.0))
    return torch.where(bad, float("nan"), weights)


def _gentle(scores: Tensor, eps: Tensor) -> Tensor:
    """Return the weights of an alpha up to 2, before the last rounding is divided away."""
    top = scores.amax(-1, keepdim=True)
    z = (scores - top).clamp(min=-torch.finfo(torch.float64).max)
    masked = scores.isneginf()

    def weights_at(c: Tensor, z: Tensor, eps: Tensor, masked: Tensor) -> Tensor:
        u = z - c
        inside = (1 + eps * u > 0) & ~masked
        exponent = torch.where(eps == 0, u, torch.log1p(eps * u) / torch.where(eps == 0, 1.0, eps))
        return torch.where(inside, exponent.exp(), 0.0)

    n = torch.tensor(float(scores.shape[-1]), dtype=torch.float64)
    low = torch.zeros_like(top)
    high = torch.where(
        eps == 0, n.log(), -torch.expm1(-eps * n.log()) / torch.where(eps == 0, 1.0, eps)
    ).expand_as(low)
    return weights_at(_bisected(weights_at, low, high, z, eps, masked), z, eps, masked)


def _steep(scores: Tensor, eps: Tensor) -> Tensor:
    """Return the weights of an alpha above 2: bisect for the smallest weight in the support.

    Scores are counted from that of the smallest weight w: ``p = (eps z + w^eps)^(1/eps)``.
    """
    ordered = scores.sort(-1, descending=True).values
    # A score is in the support if those above leave some mass, which the lower ones leave less of.
    place = torch.zeros_like(ordered[:, :1], dtype=torch.int64)
    beyond = torch.full_like(place, scores.shape[-1])
    for _ in range(scores.shape[-1].bit_length()):
        middle = (place + beyond) // 2
        gap = eps * (ordered - ordered.gather(-1, middle))
        mass = torch.where(gap > 0, gap, 0.0).pow(1 / eps).sum(-1, keepdim=True)
        place, beyond = torch.where(mass < 1, middle, place), torch.where(mass < 1, beyond, middle)
    z = scores - ordered.gather(-1, place)
    log_gap = (eps * torch.where(z > 0, z, 1.0)).log()

    def weights_at(w: Tensor, z: Tensor, eps: Tensor, log_gap: Tensor) -> Tensor:
        above = (torch.logaddexp(log_gap, eps * w.log()) / eps).exp()
        return torch.where(z > 0, above, torch.where(z == 0, w, 0.0))

    low, high = torch.zeros_like(ordered[:, :1]), torch.ones_like(ordered[:, :1])
    return weights_at(_bisected(weights_at, high, low, z, eps, log_gap), z, eps, log_gap)


def _bisected(
    weights_at: Callable[..., Tensor], above: Tensor, below: Tensor, *rows: Tensor, steps: int = 200
) -> Tensor:
    """Return where the weights of each row sum to one: ``weights_at(place, *rows)``.

    Args:
        weights_at: The weights of some rows.
        above: A place ``(rows, 1)`` where they sum to more than one.
        below: One where they do not.
        rows: What else the weights depend on, with the rows in the first dimension.
        steps: How often the interval is halved at most.
    """
    for _ in range(min(steps, 64)):
        middle = (above + below) / 2
        is_above = weights_at(middle, *rows).sum(-1, keepdim=True) > 1
        above = torch.where(is_above, middle, above)
        below = torch.where(is_above, below, middle)
    middle = (above + below) / 2
    # Few rows, those of a place near 0, have other numbers left between the ends.
    is_open = ((middle != above) & (middle != below))[:, 0]
    if steps > 64 and bool(is_open.any()):
        above, below, *rows_left = (x[is_open] for x in (above, below, *rows))
        middle[is_open] = _bisected(weights_at, above, below, *rows_left, steps=steps - 64)
    return middle


def entmax_backward(
    weights: Tensor, grad: Tensor, alpha: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``RowKernels.entmax_backward``; in float64."""
    if weights.numel() == 0:
        return torch.zeros_like(weights), weights.new_zeros(len(weights))
    eps = alpha.double().reshape(-1, 1) - 1
    support = weights > 0
    log_p = torch.where(support, weights, 1.0).log()
    if bool((eps > 1).all()):
        by_scores, by_alpha = _steep_gradients(support, log_p, grad, eps)
        return by_scores, by_alpha if with_alpha else None
    if bool((eps > 1).any()):
        rows = [
            entmax_backward(
                weights[i : i + 1], grad[i : i + 1], alpha.reshape(-1)[i], with_alpha=True
            )
            for i in range(len(weights))
        ]
        by_scores, all_alphas = (torch.cat(list(parts)) for parts in zip(*rows, strict=True))
        return by_scores, all_alphas if with_alpha else None
    sigma = torch.where(support, ((1 - eps) * log_p).exp(), 0.0)
    slope = sigma.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    centered = grad - (sigma * grad).sum(-1, keepdim=True) / slope
    grad_scores = torch.where(support, sigma * centered, 0.0)
    if not with_alpha:
        return grad_scores, None
    y = -eps * log_p
    # (e^y - 1 - y) / y^2 by its series where the subtraction would cancel
    term = tail = torch.full_like(y, 0.5)
    for k in range(3, 30):
        term = term * y / k
        tail = tail + term
    safe = torch.where(y.abs() < 1, 2.0, y)
    tail = torch.where(y.abs() < 1, tail, (torch.expm1(safe) - safe) / safe**2)
    by_alpha = torch.where(support, -weights * log_p**2 * tail, 0.0)
    return grad_scores, torch.where(support, by_alpha * centered, 0.0).sum(-1)


def _steep_gradients(
    support: Tensor, log_p: Tensor, grad: Tensor, eps: Tensor
) -> tuple[Tensor, Tensor]:
    """Count gradients from that of the smallest weight w, whose sigma overflows first."""
    place = torch.where(support, log_p, torch.inf).argmin(-1, keepdim=True)
    x = torch.where(support, log_p.gather(-1, place) - log_p, 0.0)
    distance = torch.where(support, grad - grad.gather(-1, place), 0.0)
    ratio = torch.where(support, ((eps - 1) * x).exp(), 0.0)
    ratios = ratio.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    centered = torch.where(support, distance - (ratio * distance).sum(-1, keepdim=True) / ratios, 0)
    sigma = ((1 - eps) * log_p).exp()
    mine = torch.where(distance == 0, 0.0, sigma * distance)
    others = ratio * (mine.sum(-1, keepdim=True) / ratios)
    is_finite = mine.isfinite() & mine.sum(-1, keepdim=True).isfinite()
    beyond = torch.where(centered == 0, 0.0, sigma * centered)
    # dp/dalpha at fixed w, q = (w / p)^eps
    q = (eps * x).exp()
    by_alpha = log_p.exp() / eps * ((1 - q) * (1 / eps - log_p) + q * x)
    return torch.where(is_finite, mine - others, beyond), (by_alpha * centered).sum(-1)


def conjugate(scores: Tensor, alpha: Tensor) -> Tensor:
    """``max_p <p, s> - Omega(p)`` per row, Omega the negative Tsallis entropy of order alpha."""
    weights = entmax_forward(scores, alpha)
    eps = alpha.double().reshape(-1, 1) - 1
    support = weights > 0
    log_p = torch.where(support, weights, 1.0).log()
    u = torch.where(eps == 0, log_p, torch.expm1(eps * log_p) / torch.where(eps == 0, 1.0, eps))
    expected = (weights * torch.where(support, scores, 0.0)).sum(-1)
    return expected - (weights * u).sum(-1) / (1 + eps.squeeze(-1))


def _target(problem: LossProblem) -> tuple[Tensor, Tensor, Tensor]:
    """Return the target mass, its sum per row, and the scores with ignored rows set to zero."""
    scores = problem.scores.double()
    mass = problem.mass(scores)
    total = mass.sum(-1)
    return mass, total, torch.where(total.unsqueeze(-1) == 0, 0.0, scores)


def empty_loss_saved(problem: LossProblem) -> SavedRows:
    """See ``LossKernels.empty_loss_saved``."""
    return SavedRows(weights=torch.empty(problem.scores.shape, dtype=torch.float64))


def loss_forward(problem: LossProblem) -> tuple[Tensor, SavedRows]:
    """See ``LossKernels.loss_forward``; any dtype."""
    mass, total, scores = _target(problem)
    chosen = torch.where(mass == 0, 0.0, mass * scores).sum(-1)
    loss = total * conjugate(scores, problem.alpha) - chosen
    return loss, SavedRows(weights=entmax_forward(scores, problem.alpha))


def loss_backward(
    problem: LossProblem, saved: SavedRows, grad: Tensor, *, with_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``LossKernels.loss_backward``; all in float64."""
    mass, total, _ = _target(problem)
    by_scores = grad.unsqueeze(-1) * (total.unsqueeze(-1) * saved.weights - mass)
    if not with_alpha:
        return by_scores, None
    return by_scores, grad * total * _conjugate_by_alpha(saved.weights, problem.alpha)


def _conjugate_by_alpha(weights: Tensor, alpha: Tensor) -> Tensor:
    """Return the derivative of the conjugate per row: minus that of Omega at fixed weights."""
    eps = alpha.double().reshape(-1, 1) - 1
    log_p = torch.where(weights > 0, weights, 1.0).log()
    y = eps * log_p
    u = torch.where(eps == 0, log_p, torch.expm1(y) / torch.where(eps == 0, 1.0, eps))
    # (1 + (y - 1) e^y) / y^2 by its series, sum of (k + 1) y^k / (k + 2)!, where it would cancel
    term, slope = torch.full_like(y, 0.5), torch.full_like(y, 0.5)
    for k in range(1, 30):
        term = term * y / (k + 2)
        slope = slope + (k + 1) * term
    far = torch.where(y.abs() < 1, 2.0, y)
    slope = torch.where(y.abs() < 1, slope, (1 + (far - 1) * far.exp()) / far**2)
    by_alpha = weights * (log_p**2 * slope - u / (1 + eps)) / (1 + eps)
    return -by_alpha.sum(-1)


def attention_forward(problem: AttentionProblem, *, keep: bool) -> tuple[Tensor, SavedRows | None]:
    """See ``AttentionKernels.attention_forward``; any dtype, the output in float64."""
    if is_packed(problem):
        return _packed_forward(problem, keep)
    value = _per_head(problem.value, problem)
    weights = _weights(problem)
    output = (_factors(problem) * weights[..., : value.shape[2]]) @ value
    return output, SavedRows(weights=weights) if keep else None


def _packed_forward(problem: AttentionProblem, keep: bool) -> tuple[Tensor, SavedRows | None]:
    b, h, q, _ = problem.query.shape
    output = torch.zeros(b, h, q, problem.value.shape[3], dtype=torch.float64)
    offsets = offsets_of(problem)
    kept = [torch.empty(0, dtype=torch.float64)]
    for s, sequence in enumerate(unpacked(problem, offsets)):
        output[:, :, offsets.queries(s)], saved = attention_forward(sequence, keep=True)
        assert saved is not None
        kept.append(saved.weights.flatten())
    return output, SavedRows(weights=torch.cat(kept)) if keep else None


def _packed_backward(
    problem: AttentionProblem, saved: SavedRows, grad: Tensor, needs: frozenset[str]
) -> AttentionGradients:
    offsets = offsets_of(problem)
    parts, used = [], 0
    for s, sequence in enumerate(unpacked(problem, offsets)):
        (b, h, q, _), k = sequence.query.shape, sequence.key.shape[2]
        shape = (b, h, q, k + (problem.sinks is not None))
        size = b * h * q * shape[3]
        mine = SavedRows(weights=saved.weights[used : used + size].reshape(shape))
        parts.append(attention_backward(sequence, mine, grad[:, :, offsets.queries(s)], needs))
        used += size
    return joined_gradients(problem, offsets, parts)


def _per_head(x: Tensor, problem: AttentionProblem) -> Tensor:
    """``(b, g, k, d)`` as ``(b, h, k, d)`` in float64."""
    return x.double().repeat_interleave(problem.query.shape[1] // x.shape[1], 1)


def _distance(problem: AttentionProblem) -> Tensor:
    q, k = problem.query.shape[2], problem.key.shape[2]
    return (torch.arange(q).unsqueeze(-1) + k - q - torch.arange(k)).abs().double()


def _factors(problem: AttentionProblem) -> Tensor:
    factors = dropout_factors(problem)
    return torch.ones((), dtype=torch.float64) if factors is None else factors.double()


def _weights(problem: AttentionProblem) -> Tensor:
    b, h, q, _ = problem.query.shape
    k = problem.key.shape[2]
    scores = problem.scale * problem.query.double() @ _per_head(problem.key, problem).mT
    if problem.softcap is not None:
        scores = problem.softcap * (scores / problem.softcap).tanh()
    if problem.slopes is not None:
        scores = scores - problem.slopes.double().reshape(h, 1, 1) * _distance(problem)
    if problem.mask is not None and problem.mask.dtype != torch.bool:
        scores = scores + problem.mask.double()
    if problem.mask is not None and problem.mask.dtype == torch.bool:
        scores = scores.masked_fill(~problem.mask, -torch.inf)
    i, j = problem.position + torch.arange(q).unsqueeze(-1), torch.arange(k)
    if problem.key_lengths is not None:
        scores = scores.masked_fill(j >= problem.key_lengths.reshape(b, 1, 1, 1), -torch.inf)
    if problem.is_causal:
        scores = scores.masked_fill(j > i, -torch.inf)
    if problem.window_left is not None:
        scores = scores.masked_fill(j < i - problem.window_left, -torch.inf)
    if problem.window_right is not None:
        scores = scores.masked_fill(j > i + problem.window_right, -torch.inf)
    if problem.sinks is not None:
        scores = torch.cat((scores, problem.sinks.double().reshape(h, 1, 1).expand(b, h, q, 1)), -1)
    flat = entmax_forward(scores.reshape(b * h * q, scores.shape[3]), _alpha_rows(problem))
    return flat.reshape(scores.shape)


def _alpha_rows(problem: AttentionProblem) -> Tensor:
    return problem.alpha.double().expand(*problem.query.shape[:3], 1).reshape(-1)


def attention_backward(
    problem: AttentionProblem,
    saved: SavedRows,
    grad: Tensor,
    needs: frozenset[str] = frozenset(tensor_names(AttentionGradients)),
) -> AttentionGradients:
    """See ``AttentionKernels.attention_backward``; all in float64, by default all there are."""
    if is_packed(problem):
        return _packed_backward(problem, saved, grad, needs)
    query, key, value = (
        problem.query.double(),
        _per_head(problem.key, problem),
        _per_head(problem.value, problem),
    )
    grad, weights, factors = grad.double(), saved.weights, _factors(problem)
    (b, h, q, columns), g, k = weights.shape, problem.key.shape[1], problem.key.shape[2]
    by_weights = torch.zeros_like(weights)  # a sink has no value
    by_weights[..., :k] = factors * (grad @ value.mT)
    flat_scores, flat_alpha = entmax_backward(
        weights.flatten(0, 2),
        by_weights.flatten(0, 2),
        _alpha_rows(problem),
        with_alpha=True,
    )
    assert flat_alpha is not None
    by_columns = flat_scores.reshape(b, h, q, columns)
    weights, by_scores = weights[..., :k], by_columns[..., :k]
    by_products = by_scores
    if problem.softcap is not None:
        products = problem.scale * query @ key.mT
        by_products = by_scores / (products / problem.softcap).cosh() ** 2
    by_key = problem.scale * by_products.mT @ query
    by_value = (factors * weights).mT @ grad
    mask, slopes = problem.mask, problem.slopes
    has_bias = "mask" in needs and mask is not None and mask.dtype != torch.bool
    return AttentionGradients(
        query=problem.scale * by_products @ key,
        key=by_key.unflatten(1, (g, h // g)).sum(2),
        value=by_value.unflatten(1, (g, h // g)).sum(2),
        alpha=flat_alpha.reshape(b, h, q, 1).sum_to_size(problem.alpha.shape),
        mask=by_scores.sum_to_size(mask.shape) if has_bias and mask is not None else None,
        slopes=None if slopes is None else -(by_scores * _distance(problem)).sum((0, 2, 3)),
        sinks=None if problem.sinks is None else by_columns[..., k].sum((0, 2)),
    )


def attention_support(problem: AttentionProblem) -> SparseRows:
    """See ``AttentionKernels.attention_support``."""
    weights = _weights(problem)[..., : problem.key.shape[2]].flatten(0, 2)
    row, col = weights.nonzero(as_tuple=True)
    crow = row.new_zeros(len(weights) + 1)
    crow[1:] = row.bincount(minlength=len(weights)).cumsum(0)
    return SparseRows(crow=crow, col=col, value=weights[row, col])
