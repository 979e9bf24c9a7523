import math

import numpy as np
import pytest
from benchmarks.evidence.statistics import (
    bleu_of_sums,
    difference_interval,
    mean_interval,
    paired_bootstrap,
    student_quantile,
)
from sacrebleu.metrics import BLEU

SENTENCES = (
    "two men are standing on the roof of a house .",
    "a dog runs through the snow .",
    "a girl in a red dress is playing with a ball .",
    "people wait for the train .",
)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    # Printed in every textbook's table of two-sided 95% quantiles.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_student_quantiles_are_those_of_the_tables(freedom, expected):
    assert student_quantile(freedom) == pytest.approx(expected, abs=6e-4)


def test_student_quantile_of_one_degree_is_a_tangent():
    # Cauchy's distribution, whose quantiles are known in closed form.
    for probability in (0.6, 0.9, 0.975):
        expected = math.tan(math.pi * (probability - 0.5))
        assert student_quantile(1, probability) == pytest.approx(expected, rel=1e-9)


def test_interval_of_a_mean_by_hand():
    found = mean_interval([90.0, 94.0, 98.0])
    # Standard deviation 4, error 4 / sqrt(3), quantile 4.3027.
    assert found.mean == 94.0
    assert found.high - found.mean == pytest.approx(4.3027 * 4 / math.sqrt(3), abs=1e-3)
    assert found.count == 3


def test_one_seed_has_no_interval_and_says_nothing():
    found = mean_interval([1.0])
    assert math.isnan(found.low) and math.isnan(found.high)
    assert not found.excludes_zero
    assert not difference_interval([100.0], [0.0, 0.0]).excludes_zero


def test_intervals_hold_the_mean_as_often_as_they_say():
    rng = np.random.default_rng(0)
    means = [mean_interval(rng.normal(5, 3, size=3).tolist()) for _ in range(1000)]
    differences = [
        difference_interval(rng.normal(2, 1, size=3).tolist(), rng.normal(0, 4, size=5).tolist())
        for _ in range(1000)
    ]
    assert np.mean([x.low <= 5 <= x.high for x in means]) == pytest.approx(0.95, abs=0.015)
    # Welch's interval is a little wide where the smaller sample has the smaller variance.
    assert 0.93 < np.mean([x.low <= 2 <= x.high for x in differences]) < 0.985


def test_equal_variances_make_welch_the_pooled_interval():
    ours, theirs = [1.0, 2.0, 3.0], [5.0, 6.0, 7.0]
    found = difference_interval(ours, theirs)
    half = student_quantile(4) * math.sqrt(2 * 1 / 3)
    assert found.mean == -4 and found.high == pytest.approx(-4 + half)
    assert found.excludes_zero


def test_results_without_variance_differ_if_they_differ():
    assert difference_interval([100.0, 100.0], [0.0, 0.0]).excludes_zero
    assert not difference_interval([100.0, 100.0], [100.0, 100.0]).excludes_zero


@pytest.mark.parametrize("seed", range(20))
def test_bleu_is_that_of_sacrebleu(seed):
    rng = np.random.default_rng(seed)
    hypotheses = [_damaged(x, rng, 0.6 * seed / 20) for x in SENTENCES]
    bleu = BLEU()
    sums = np.array(bleu._extract_corpus_statistics(hypotheses, [list(SENTENCES)]), float).sum(0)
    expected = bleu.corpus_score(hypotheses, [list(SENTENCES)]).score
    assert bleu_of_sums(sums) == pytest.approx(expected, abs=1e-9)


def test_bleu_is_smoothed_and_zero_as_that_of_sacrebleu():
    bleu = BLEU()
    for hypotheses in (["the dog runs snow a", "no"], ["x y z w v", "u"], ["a", "b"]):
        references = ["a dog runs through the snow", "people wait"]
        sums = np.array(bleu._extract_corpus_statistics(hypotheses, [references]), float).sum(0)
        expected = bleu.corpus_score(hypotheses, [references]).score
        assert bleu_of_sums(sums) == pytest.approx(expected, abs=1e-9)


def _damaged(sentence: str, rng: np.random.Generator, share: float) -> str:
    words = [x if rng.random() > share else rng.choice(["x", "the", "a"]) for x in sentence.split()]
    return " ".join(words[: max(1, round(len(words) * (1 - share / 3)))])


def _statistics(share: float, seeds: int, sentences: int = 120) -> np.ndarray:
    rng = np.random.default_rng(round(1000 * share) + seeds)
    references = [str(rng.choice(SENTENCES)) for _ in range(sentences)]
    found = []
    for _ in range(seeds):
        hypotheses = [_damaged(x, rng, share) for x in references]
        found.append(BLEU()._extract_corpus_statistics(hypotheses, [references]))
    return np.array(found, float)


def test_bootstrap_tells_better_from_equal():
    good, bad = _statistics(0.1, 3), _statistics(0.3, 2)
    better = paired_bootstrap(good, bad, bleu_of_sums, resamples=300)
    assert better.excludes_zero and better.low < better.mean < better.high
    assert better.count == 2
    equal = paired_bootstrap(good, good[::-1], bleu_of_sums, resamples=300)
    assert equal.mean == pytest.approx(0) and not equal.excludes_zero
    assert paired_bootstrap(good, bad, bleu_of_sums, resamples=300) == better


def test_bootstrap_needs_the_same_sentences():
    with pytest.raises(ValueError, match=r"got \(3, 120, 10\) and \(3, 100, 10\)"):
        paired_bootstrap(_statistics(0.1, 3), _statistics(0.1, 3, 100), bleu_of_sums)
