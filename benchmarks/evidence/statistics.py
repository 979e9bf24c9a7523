"""Intervals of means and of differences: the only statistics of the results pages.

Seeds are few, so that intervals of means over seeds are Student's, and those of differences
Welch's. BLEU belongs to a corpus: its differences are resampled over seeds and sentences at once.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate with the ends of its 95% interval, which are NaN where there is one value."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero; never if there is none."""
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values over seeds and its 95% interval (Student)."""
    if not values:
        raise ValueError("An interval needs a value; got none.")
    count, mean = len(values), math.fsum(values) / len(values)
    if count == 1:
        return Interval(mean, math.nan, math.nan, 1)
    error = math.sqrt(_variance(values) / count)
    half = student_quantile(count - 1) * error
    return Interval(mean, mean - half, mean + half, count)


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the difference of two means over seeds and its 95% interval (Welch)."""
    if not ours or not theirs:
        raise ValueError(f"A difference needs values of both; got {len(ours)} and {len(theirs)}.")
    difference = math.fsum(ours) / len(ours) - math.fsum(theirs) / len(theirs)
    count = min(len(ours), len(theirs))
    if count == 1:
        return Interval(difference, math.nan, math.nan, 1)
    parts = [_variance(x) / len(x) for x in (ours, theirs)]
    total = sum(parts)
    if total == 0:
        return Interval(difference, difference, difference, count)
    freedom = total**2 / sum(
        part**2 / (len(x) - 1) for part, x in zip(parts, (ours, theirs), strict=True)
    )
    half = student_quantile(freedom) * math.sqrt(total)
    return Interval(difference, difference - half, difference + half, count)


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)


@cache
def student_quantile(freedom: float, probability: float = (1 + CONFIDENCE) / 2) -> float:
    """Return the quantile of Student's distribution, by bisection of its integral."""
    if not freedom > 0 or not 0.5 < probability < 1:
        raise ValueError(
            "Degrees of freedom must be above 0 and a probability between 0.5 and 1; "
            f"got {freedom} and {probability}."
        )
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        is_below = _student_mass(middle, freedom) < probability - 0.5
        low, high = (middle, high) if is_below else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _student_mass(angle: float, freedom: float, steps: int = 2000) -> float:
    """Integrate the density from 0 to ``sqrt(freedom) * tan(angle)``.

    In the angle it is a constant times cos^(freedom - 1), and Simpson's rule is exact enough.
    """
    x = np.linspace(0, angle, steps + 1)
    y = np.cos(x) ** (freedom - 1)
    weights = np.ones(steps + 1)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    integral = float((weights * y).sum()) * angle / (3 * steps)
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    return math.exp(constant) * integral


def paired_bootstrap(
    ours: NDArray[np.float64],
    theirs: NDArray[np.float64],
    score: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    resamples: int = 1000,
    seed: int = 12345,
) -> Interval:
    """Return the difference of a corpus score and its 95% interval over seeds and sentences.

    Both systems are scored on the same sentences of each resample. Seeds are resampled along with
    them, for each system by itself: models of the same seed have nothing in common.

    Args:
        ours: ``(s, n, k)``: for each seed and sentence the statistics that the score adds up.
        theirs: The same of the baseline; the number of seeds may differ.
        score: Map from sums ``(..., k)`` to scores ``(...)``.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
    """
    if ours.ndim != 3 or theirs.ndim != 3 or ours.shape[1:] != theirs.shape[1:]:
        raise ValueError(
            "Statistics must be (s, n, k) of the same sentences; "
            f"got {ours.shape} and {theirs.shape}."
        )
    rng = np.random.default_rng(seed)
    count = ours.shape[1]
    found = np.empty(resamples)
    for i in range(resamples):
        # Sums depend only on the number of times that each sentence is drawn.
        times = np.bincount(rng.integers(count, size=count), minlength=count)
        means = []
        for system in (ours, theirs):
            seeds = rng.integers(len(system), size=len(system))
            means.append(score(np.einsum("n,snk->sk", times, system))[seeds].mean())
        found[i] = means[0] - means[1]
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    difference = score(ours.sum(1)).mean() - score(theirs.sum(1)).mean()
    return Interval(float(difference), float(low), float(high), min(len(ours), len(theirs)))


def bleu_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return corpus BLEU of summed statistics ``(..., 10)``, as sacreBLEU has it.

    They are the lengths of hypothesis and reference, the correct n-grams of orders 1 to 4, and
    all n-grams of the hypothesis, as ``BLEU._extract_corpus_statistics`` lists them. Orders without
    a correct n-gram are smoothed exponentially.
    """
    length, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2:6], sums[..., 6:10]
    misses = np.cumsum((correct == 0) & (total > 0), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        smoothed = np.where(correct > 0, correct, 0.5**misses)
        logs = np.log(smoothed / total).sum(-1) / 4
        brevity = np.where(length < reference, 1 - reference / length, 0.0)
    score = 100 * np.exp(brevity + logs)
    is_scored = (total > 0).all(-1) & (correct > 0).any(-1)
    result: NDArray[np.float64] = np.where(is_scored, score, 0.0)
    return result
