"""entmax of one row by bisection in long double, independent of the kernels.

Above alpha = 2 the logarithm of the smallest weight in the support is bisected, since the
normalizer itself would need thousands of digits. Gradients are the formulas of the papers in
decimal numbers, whose exponents have no bound.
"""

from decimal import Decimal, localcontext

import numpy as np

Long = np.longdouble


def _bisected(sum_at, low, high):
    """Return where a falling sum crosses one.

    Double precision narrows the bracket; if it still holds in long double, only that is halved.
    """
    rough = _halved(lambda x: sum_at(x, np.float64), np.float64(low), np.float64(high), 50)
    margin = 1e-10 * max(1, abs(rough))
    near = max(Long(low), Long(rough) - margin), min(Long(high), Long(rough) + margin)
    is_inside = sum_at(near[0], Long) > 1 >= sum_at(near[1], Long)
    low, high, steps = (*near, 50) if is_inside else (Long(low), Long(high), 90)
    return _halved(lambda x: sum_at(x, Long), low, high, steps)


def _halved(sum_at, low, high, steps):
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if sum_at(middle) > 1 else (low, middle)
    return (low + high) / 2


def _gentle(scores, eps):
    z = scores - scores.max()
    near = eps * z > -1 if eps > 0 else np.isfinite(z)  # the rest has no weight
    given = {Long: (z[near], eps), np.float64: (z[near].astype(float), float(eps))}

    def weights_at(c, kind=Long):
        z, eps = given[kind]
        if eps == 0:
            return np.exp(z - c)
        with np.errstate(divide="ignore"):
            return np.exp(np.log1p(np.maximum(eps * (z - c), -1)) / eps)

    c = _bisected(lambda c, kind: weights_at(c, kind).sum(), 0, 50 + 1 / max(eps, 1e-3))
    weights = np.zeros_like(scores)
    weights[near] = weights_at(c)
    return weights


def _steep(scores, eps):
    smallest = _smallest_in_support(scores, eps)
    above, at = scores > smallest, scores == smallest
    log_gap = np.log(eps * (scores[above] - smallest))
    given = {Long: (log_gap, eps), np.float64: (log_gap.astype(float), float(eps))}

    def weights_at(log_w, kind=Long):
        log_gap, eps = given[kind]
        return np.exp(np.logaddexp(log_gap, eps * log_w) / eps)

    def sum_at(minus, kind):
        return weights_at(-minus, kind).sum() + at.sum() * np.exp(-minus)

    log_w = -_bisected(sum_at, 0, 100)
    weights = np.zeros_like(scores)
    weights[above], weights[at] = weights_at(log_w), np.exp(log_w)
    return weights


def _smallest_in_support(scores, eps):
    """Return the lowest score at which those above it have a sum below one: a falling sum."""
    found = np.unique(scores[np.isfinite(scores)])
    low, high = 0, len(found) - 1  # above the highest there are none
    while low < high:
        middle = (low + high) // 2
        above = scores[scores > found[middle]]
        is_below = ((eps * (above - found[middle])) ** (1 / eps)).sum() < 1
        low, high = (low, middle) if is_below else (middle + 1, high)
    return found[low]


def entmax_row(scores, alpha):
    """Return the weights of a row of numbers as long doubles; all zero if every score is -inf."""
    scores, eps = np.asarray(scores, dtype=Long), Long(alpha) - 1
    if not (scores > -np.inf).any():
        return np.zeros_like(scores)
    return _steep(scores, eps) if eps > 1 else _gentle(scores, eps)


def entmax_row_gradients(weights, grad, alpha):
    """Return the gradients of ``sum(grad * weights)``, and the size of the terms of the second.

    The first is with respect to scores, the second to alpha.

    Args:
        weights: Of ``entmax_row``.
        grad: One number for each.
        alpha: At least 1.
    """
    with localcontext() as context:
        context.prec = 60
        eps = Decimal(float(alpha)) - 1
        p = [_exact(x) for x in weights]
        g = [Decimal(float(x)) for x in grad]
        support = [i for i, x in enumerate(p) if x > 0]
        log_p = {i: p[i].ln() for i in support}
        sigma = {i: ((1 - eps) * log_p[i]).exp() for i in support}
        slope = sum(sigma.values())
        # g minus its mean weighted by sigma, which must not cancel
        centered = {i: sum(sigma[k] * (g[i] - g[k]) for k in support) / slope for i in support}
        by_score = [float(sigma[i] * centered[i]) if i in sigma else 0.0 for i in range(len(p))]
        # The papers have a term in sigma, too, whose sum with `centered` is zero.
        terms = (
            [-p[i] * log_p[i] ** 2 / 2 for i in support]
            if eps == 0
            else [(p[i] - eps * p[i] * log_p[i]) / eps**2 for i in support]
        )
        by_alpha = sum(t * centered[i] for t, i in zip(terms, support, strict=True))
        size = 1 + sum(float(p[i] * log_p[i] ** 2) for i in support)
        return by_score, float(by_alpha), size


def _exact(x):
    """Return a long double as a decimal number."""
    high = float(x)
    return Decimal(high) + Decimal(float(x - Long(high)))
