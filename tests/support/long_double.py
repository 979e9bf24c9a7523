"""entmax of one row by bisection in long double, independent of the kernels.

Above alpha = 2 the logarithm of the smallest weight in the support is bisected, since the
normalizer itself would need thousands of digits. Gradients are the formulas of the papers in
decimal numbers, whose exponents have no bound.
"""

from decimal import Decimal, localcontext

import numpy as np

Long = np.longdouble


def _bisected(sum_above, low, high, steps=90):
    """Return where a falling sum crosses one."""
    low, high = Long(low), Long(high)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if sum_above(middle) > 1 else (low, middle)
    return (low + high) / 2


def _gentle(scores, eps):
    z = scores - scores.max()
    finite = np.isfinite(z)

    def weights_at(c):
        u = np.where(finite, z - c, 0)
        if eps == 0:
            return np.where(finite, np.exp(u), 0)
        inside = finite & (1 + eps * u > 0)
        return np.where(inside, np.exp(np.log1p(np.where(inside, eps * u, 0)) / eps), 0)

    return weights_at(_bisected(lambda c: weights_at(c).sum(), 0, 50 + 1 / max(eps, 1e-3)))


def _steep(scores, eps):
    for smallest in sorted(set(scores[np.isfinite(scores)].tolist())):
        above = scores > smallest
        edge = ((eps * (scores[above] - Long(smallest))) ** (1 / eps)).sum()
        if edge < 1:
            break
    gap = np.where(above, scores - Long(smallest), 1)

    def weights_at(log_w):
        power = np.exp(np.logaddexp(np.log(eps * gap), eps * log_w) / eps)
        return np.where(above, power, np.where(scores == Long(smallest), np.exp(log_w), 0))

    return weights_at(-_bisected(lambda minus: weights_at(-minus).sum(), 0, 100))


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
