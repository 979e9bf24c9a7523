"""Measures against brute force on random attention."""

import math

import numpy as np
import pytest
import torch

import adasparse
from adasparse.analysis import from_dense, measures
from adasparse.analysis.recording.layer_weights import LayerWeights
from support.brute_force import Brute

CASES = {
    "softmax": {"alpha": 1.0},
    "sparse": {"alpha": 1.7},
    "causal": {"alpha": 1.5, "is_causal": True},
    "context": {"alpha": 1.4, "queries": 5},
    "one token": {"alpha": 1.5, "keys": 1},
    "left padding": {"alpha": 1.5, "side": "left", "is_causal": True},
    "masked rows": {"alpha": 1.5, "is_masked": True},
    "no padding": {"alpha": 1.3, "side": None},
}


class Case:
    """Random weights ``(b, h, q, k)``, masks, and annotations."""

    def __init__(
        self, alpha, *, keys=9, queries=None, is_causal=False, side="right", is_masked=False
    ):
        b, h = 4, 3
        generator = torch.Generator().manual_seed(7)
        self.is_causal = is_causal
        self.is_context = queries is not None
        q, k = queries or keys, keys
        scores = 2 * torch.randn(b, h, q, k, generator=generator, dtype=torch.float64)
        self.key_mask = self.padding(b, k, side)
        self.query_mask = self.padding(b, q, side) if self.is_context else self.key_mask
        can_see = self.key_mask[:, None, None].expand(b, h, q, k).clone()
        if is_causal:
            can_see &= torch.ones(q, k, dtype=torch.bool).tril()
        if is_masked:
            can_see[1, :, 2] = False
            can_see[2] = False
        scores = scores.masked_fill(~can_see, -math.inf)
        self.weights = adasparse.entmax(scores, alpha)
        self.keys = torch.rand(b, k, generator=generator) < 0.3
        self.keys[0] = False
        self.at = torch.rand(b, q, generator=generator) < 0.4
        words = (torch.rand(b, k, generator=generator) < 0.5).long().cumsum(-1)
        words -= words.amin(-1, keepdim=True)
        self.words = words.masked_fill(torch.rand(b, k, generator=generator) < 0.1, -1)
        self.brute = Brute(self.weights, self.key_mask, self.query_mask, is_causal)
        self.where = {"mask": self.key_mask, "is_causal": is_causal}
        if self.is_context:
            self.where["query_mask"] = self.query_mask

    @staticmethod
    def padding(b, n, side):
        lengths = torch.tensor([n, max(n - 2, 1), n, max(n - 5, 1)])
        mask = torch.arange(n) < lengths[:, None]
        if side is None:
            return torch.ones_like(mask)
        return mask if side == "right" else mask.flip(-1)


@pytest.fixture(params=CASES)
def case(request):
    return Case(**CASES[request.param])


def assert_equal(actual, expected):
    np.testing.assert_allclose(actual.numpy(), np.array(expected), atol=1e-9)


def test_density(case):
    assert_equal(measures.density(case.weights, **case.where), case.brute.density())


def test_entropy(case):
    assert_equal(measures.entropy(case.weights, **case.where), case.brute.entropy())


def test_diversity(case):
    assert_equal(measures.diversity(case.weights, **case.where), case.brute.diversity())


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
def test_offset(case, offset):
    actual = measures.offset_weight(case.weights, offset=offset, **case.where)
    assert_equal(actual, case.brute.offset_weight(offset))


def test_distance(case):
    assert_equal(measures.distance(case.weights, **case.where), case.brute.distance())


def test_key_weight(case):
    actual = measures.key_weight(case.weights, case.keys, **case.where)
    assert_equal(actual, case.brute.key_weight(case.keys.tolist()))


def test_rarity(case):
    actual = measures.rarity(case.weights, case.keys, **case.where)
    assert_equal(actual, case.brute.rarity(case.keys.tolist()))


@pytest.mark.parametrize(("function", "smallest"), [("merging", 1), ("split_merging", 2)])
def test_merging(case, function, smallest):
    if case.is_context:
        with pytest.raises(ValueError, match="where queries are keys"):
            getattr(measures, function)(case.weights, case.words, **case.where)
        return
    actual = getattr(measures, function)(case.weights, case.words, **case.where)
    assert_equal(actual, case.brute.merging(case.words.tolist(), smallest))


def test_interrogation(case):
    actual = measures.interrogation(case.weights, case.at, case.keys, **case.where)
    expected = case.brute.interrogation(case.at.tolist(), case.keys.tolist())
    assert_equal(actual, expected)


def test_sparse_weights_measure_the_same(case):
    layers = from_dense(case.weights, case.key_mask, query_mask=case.query_mask)
    layers = [LayerWeights(**{**vars(x), "is_causal": case.is_causal}) for x in layers]
    if not case.is_causal:
        assert torch.equal(
            measures.entropy(layers).nan_to_num(),
            measures.entropy(case.weights, **case.where).nan_to_num(),
        )
    assert_equal(measures.distance(layers), case.brute.distance())


def test_heads_that_agree_are_not_diverse_and_heads_apart_are():
    same = torch.full((1, 4, 3, 4), 0.25)
    assert measures.diversity(same).item() == pytest.approx(0, abs=1e-12)
    apart = torch.eye(4).reshape(1, 4, 1, 4).expand(1, 4, 3, 4)
    assert measures.diversity(apart).item() == pytest.approx(1)


def test_where_nothing_counts_there_is_no_value():
    empty = torch.zeros(2, 3, 4, 4)
    assert measures.density(empty).isnan().all()
    assert measures.offset_weight(torch.ones(2, 3, 1, 1), offset=-1).isnan().all()


def test_truncated_rows_keep_their_density():
    weights = torch.softmax(torch.randn(1, 2, 5, 7, generator=torch.Generator().manual_seed(0)), -1)
    layer = from_dense(weights)[0].largest(2)
    assert layer.counts.tolist() == [2] * 10
    assert measures.density([layer]).tolist() == [1.0, 1.0]


def test_mistakes_are_named():
    weights = torch.ones(2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"\(b, h, q, k\); got \(3, 4\)"):
        measures.density(torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"mask must be \(2, 5\).*got \(2, 4\)"):
        measures.density(weights, mask=torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"annotations of keys must be \(2, 5\).*got \(2, 3\)"):
        measures.key_weight(weights, torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"2 annotations.*got 1"):
        measures.interrogation(weights, torch.ones(2, 4))
    with pytest.raises(ValueError, match="where queries are keys; got 4 and 5"):
        measures.merging(weights, torch.ones(2, 5).long())
