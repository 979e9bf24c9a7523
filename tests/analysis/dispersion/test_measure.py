"""Dispersion of attention against brute force: every matrix in full, row by row in float64."""

import itertools
import json
import math
import statistics
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from adasparse.analysis import measure_dispersion
from adasparse.analysis.dispersion import measure as dispersion
from adasparse.analysis.figures import dispersion_by_length, render
from adasparse.analysis.figures.style import look_of
from adasparse.analysis.recording import attention_weights
from adasparse.longcontext.tasks import (
    IGNORED,
    Copy,
    FlipFlop,
    LocalCount,
    MultiQueryRecall,
    Sort,
    TwoBack,
)
from adasparse.nn import LengthScale
from support import dense_model
from support.small_models import ATTENTIONS, POSITIONS, model

MEANS = ("entropy", "relative_entropy", "support", "support_share", "relevant")
SPREADS = ("beta", "gamma", "scale")


@dataclass(frozen=True, kw_only=True)
class Uneven(Copy):
    """Examples of several lengths, of which every third label is not asked for."""

    side: str = "right"
    num_symbols: int = 8

    def batch(self, seed, size, length, *, first=0, padding_side="right"):
        lengths = (length - 3, length)
        found = super().batch(seed, size, lengths, first=first, padding_side=self.side)
        found.labels[found.attention_mask.cumsum(1) % 3 == 0] = IGNORED
        return found


SMALL = [
    Uneven(side="left"),
    Uneven(side="right"),
    TwoBack(num_symbols=8),
    LocalCount(num_symbols=4, longest_run=5),
    FlipFlop(),
    Sort(num_symbols=6),
]


def scale_numbers(config, layer, head, x):
    """Beta and gamma of a head, None without."""
    first = config.num_attention_heads // 2 if config.positions == "nape" else 0
    if head < first or not config.attention.startswith("asentmax"):
        return None, None
    name = "self_attn.length_scale"
    raw = [
        (layer[f"{name}.{x_}_weight"][head - first] @ x).item()
        + layer[f"{name}.{x_}_bias"][head - first].item()
        for x_ in ("beta", "gamma")
    ]
    return math.log(1 + math.exp(raw[0])), 2 * math.tanh(raw[1])


def run_dense(made, tokens, monkeypatch):
    """Weights ``(h, n, n)`` of each layer, and beta, gamma and scale of each head and place."""
    weights, scales = [], []
    plain_weights, plain_scale = dense_model._weights, dense_model._scale

    def keep_weights(*args):
        weights.append(plain_weights(*args))
        return weights[-1]

    def keep_scale(config, layer, head, x, i):
        scale = plain_scale(config, layer, head, x, i)
        scales.append((*scale_numbers(config, layer, head, x), scale))
        return scale

    with monkeypatch.context() as patch:
        patch.setattr(dense_model, "_weights", keep_weights)
        patch.setattr(dense_model, "_scale", keep_scale)
        dense_model.reference_logits(made, tokens[None])
    h, n = weights[0].shape[:2]
    by_layer = [scales[i * h * n : (i + 1) * h * n] for i in range(len(weights))]
    return weights, [[part[i * n : (i + 1) * n] for i in range(h)] for part in by_layer]


def brute_force(made, task, length, examples, monkeypatch, *, seed=0):
    """For each layer and head the values of all rows, by the name of the measure."""
    batch = task.batch(seed, examples, length)
    found = {}
    for b in range(examples):
        kept = batch.attention_mask[b].bool()
        start = int(kept.nonzero()[0])
        weights, scales = run_dense(made, batch.input_ids[b][kept], monkeypatch)
        for t in range(1, kept.shape[0]):
            if batch.labels[b, t] == IGNORED:
                continue
            query = t - 1 - start
            for layer, head in itertools.product(range(len(weights)), range(len(scales[0]))):
                row = weights[layer][head][query].tolist()
                assert not any(row[query + 1 :])
                values = found.setdefault((layer, head), {x: [] for x in (*MEANS, *SPREADS)})
                entropy = -sum(p * math.log(p) for p in row if p > 0)
                support = sum(p > 0 for p in row)
                values["entropy"].append(entropy)
                values["relative_entropy"].append(entropy / math.log(query + 1))
                values["support"].append(support)
                values["support_share"].append(support / (query + 1))
                if batch.relevant[b, t] >= 0:
                    values["relevant"].append(row[batch.relevant[b, t] - start])
                for name, x in zip(SPREADS, scales[layer][head][query], strict=True):
                    values[name].append(x)
    return found


def is_scaled(config, head):
    scales = config.attention == "ssmax" or config.attention.startswith("asentmax")
    return scales and not (config.positions == "nape" and head < config.num_attention_heads // 2)


def assert_same(found, expected, config):
    assert [(x.layer, x.head) for x in found.heads] == sorted(expected)
    for head in found.heads:
        values = expected[head.layer, head.head]
        assert found.rows == len(values["entropy"])
        for name in MEANS:
            assert getattr(head, name) == pytest.approx(statistics.mean(values[name]), abs=1e-6)
        for name in SPREADS:
            spread = getattr(head, name)
            if values[name][0] is None or not is_scaled(config, head.head):
                assert spread is None
                continue
            assert spread.mean == pytest.approx(statistics.mean(values[name]), abs=1e-6)
            assert spread.std == pytest.approx(statistics.pstdev(values[name]), abs=1e-6)


@pytest.mark.parametrize(
    ("attention", "positions", "task"),
    [
        (attention, positions, SMALL[(i + 2 * j) % len(SMALL)])
        for (i, attention), (j, positions) in itertools.product(
            enumerate(ATTENTIONS), enumerate(POSITIONS)
        )
    ],
    ids=str,
)
def test_agrees_with_brute_force(attention, positions, task, monkeypatch):
    made = model(attention, positions).double()
    found = measure_dispersion(made, task, [11, 6], examples=2, seed=3)
    assert (found.task, found.attention, found.positions) == (task.name, attention, positions)
    assert [x.length for x in found.lengths] == [6, 11]
    for each in found.lengths:
        expected = brute_force(made, task, each.length, 2, monkeypatch, seed=3)
        assert_same(each, expected, made.config)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_grouping_change_nothing(side, monkeypatch):
    made = model("asentmax-adaptive", "alibi").double()
    task = Uneven(side=side)
    together = measure_dispersion(made, task, [9], examples=7).lengths[0]
    monkeypatch.setattr(dispersion, "_TOKENS_PER_BATCH", 1)
    monkeypatch.setattr(attention_weights, "BLOCK_SIZE", 100)
    alone = measure_dispersion(made, task, [9], examples=7).lengths[0]
    assert alone.rows == together.rows
    for one, other in zip(alone.heads, together.heads, strict=True):
        for name in MEANS:
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9)
        for name in SPREADS:
            assert getattr(one, name).mean == pytest.approx(getattr(other, name).mean, abs=1e-9)
            assert getattr(one, name).std == pytest.approx(getattr(other, name).std, abs=1e-9)


def test_alpha_is_that_of_each_head():
    made = model("adaptive", "rope")
    heads = measure_dispersion(made, SMALL[0], [6], examples=1).lengths[0].heads
    learned = torch.cat([layer.self_attn.alpha() for layer in made.model.layers])
    assert [head.alpha for head in heads] == pytest.approx(learned.tolist())
    assert len({head.alpha for head in heads}) == 8
    fixed = measure_dispersion(model("entmax", "rope", alpha=1.7), SMALL[0], [6], examples=1)
    assert {head.alpha for head in fixed.lengths[0].heads} == {1.7}
    dense = measure_dispersion(model("ssmax", "rope", alpha=1.7), SMALL[0], [6], examples=1)
    assert {head.alpha for head in dense.lengths[0].heads} == {1.0}


def test_beta_and_gamma_may_be_free_numbers():
    made = model("asentmax", "nope", num_hidden_layers=1)
    scale = LengthScale(4, kind="per_head", heads=[1, 3])
    nn.init.constant_(scale.gamma, 1.25)
    made.model.layers[0].self_attn.length_scale = scale
    heads = measure_dispersion(made, SMALL[0], [6], examples=1).lengths[0].heads
    assert [head.beta is None for head in heads] == [True, False, True, False]
    assert heads[1].beta.mean == pytest.approx(0.05)
    assert (heads[3].gamma.mean, heads[3].gamma.std) == (1.25, 0)
    assert heads[3].scale.std > 0


class Largest(TorchDispatchMode):
    """Remembers how many elements the largest tensor has that any operation gives."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor) and not func.is_view:
                self.numel = max(self.numel, x.numel())
        return result


@pytest.mark.parametrize("attention", ["softmax", "asentmax-adaptive", "adaptive-temperature"])
def test_there_is_no_matrix_of_all_weights(attention, monkeypatch):
    made = model(attention, "rope", num_hidden_layers=1)
    everything = measure_dispersion(made, SMALL[2], [500], examples=1)
    monkeypatch.setattr(attention_weights, "BLOCK_SIZE", 2**14)
    monkeypatch.setattr("adasparse.functional.adaptive_temperature.BLOCK_SIZE", 2**14)
    with Largest() as largest:
        found = measure_dispersion(made, SMALL[2], [500], examples=1)
    assert largest.numel <= 502 * 40  # the MLP; one head alone has 502 * 502 weights
    for one, other in zip(found.lengths[0].heads, everything.lengths[0].heads, strict=True):
        for name in MEANS:
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-4)


def test_long_contexts_fit():
    made = model("asentmax", "nape", num_hidden_layers=1, vocab_size=262)
    with Largest() as largest:
        found = measure_dispersion(made, MultiQueryRecall(), [16384], examples=1).lengths[0]
    assert found.rows == 9
    assert largest.numel <= 2**21
    assert all(0 <= head.relevant <= 1 for head in found.heads)


def test_labels_without_an_answer_do_not_count_in_its_weight():
    made = model("softmax", "nope")

    class Nowhere(Uneven):
        def batch(self, *args, **options):
            found = super().batch(*args, **options)
            found.relevant.fill_(-1)
            return found

    found = measure_dispersion(made, Nowhere(), [6], examples=1)
    assert {head.relevant for head in found.lengths[0].heads} == {None}
    figure = dispersion_by_length({"softmax": found})
    assert {row["measure"] for row in figure.numbers} == {"entropy", "support"}
    assert render(figure, "svg").startswith(b"<?xml")


def test_models_are_left_as_they_were():
    made = model("asentmax", "nape").train()
    seen = []
    found = measure_dispersion(made, SMALL[0], [7, 5, 7], examples=1, on_length=seen.append)
    assert made.training
    assert tuple(seen) == found.lengths
    assert not any(module._forward_pre_hooks for module in made.modules())
    assert all(x.grad is None for x in made.parameters())


def test_results_are_plain_json():
    for attention in ("ssmax", "asentmax"):
        found = measure_dispersion(model(attention, "nape"), SMALL[0], [5, 8], examples=2)
        as_dict = found.to_dict()
        assert json.loads(json.dumps(as_dict, allow_nan=False)) == as_dict
        assert as_dict["lengths"][1] == found.lengths[1].to_dict()
        assert as_dict["lengths"][1]["heads"][7] == found.lengths[1].heads[7].to_dict()


def test_mistakes_are_told(monkeypatch):
    made = model()
    for lengths, examples, message in (
        ([], 1, r"a length and an example; got \[\] and 1"),
        ([8], 0, r"got \[8\] and 0"),
        ([8, 2], 1, "at least 3 for 2back; got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_dispersion(made, SMALL[2], lengths, examples=examples)
    with pytest.raises(ValueError, match="at least the 36 tokens of sort; got 13"):
        measure_dispersion(made, Sort(), [8])
    with pytest.raises(TypeError, match="must be a long-context model; got Linear"):
        measure_dispersion(nn.Linear(2, 2), SMALL[0], [8])
    monkeypatch.setattr(dispersion, "available_memory", lambda: 2**20)
    with pytest.raises(ValueError, match=r"fit into 0.00 GiB of memory; 8 takes about 0.06 GiB"):
        measure_dispersion(made, SMALL[0], [8])


def test_figure_shows_the_mean_and_the_range_of_the_heads():
    found = {
        "softmax + nape": measure_dispersion(model("softmax"), SMALL[5], [5, 10], examples=2),
        "asentmax + nape": measure_dispersion(model("asentmax"), SMALL[5], [20], examples=2),
    }
    figure = dispersion_by_length(found, train_lengths=[5])
    rows = {(x["run"], x["measure"], x["length"]): x for x in figure.numbers}
    assert len(rows) == 9
    for (run, measure, length), row in rows.items():
        (each,) = (x for x in found[run].lengths if x.length == length)
        values = [getattr(head, measure) for head in each.heads]
        assert row["mean"] == pytest.approx(statistics.mean(values))
        assert (row["lowest"], row["highest"]) == (min(values), max(values))
    texts = [x.get_text() for x in figure.legends[0].get_texts()]
    assert texts == ["asentmax + nape", "softmax + nape"]
    colors = [x.get_color() for x in figure.legends[0].get_lines()]
    assert colors == [look_of(0).color, look_of(1).color]
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 3
    assert render(figure, "png").startswith(b"\x89PNG")


def test_figure_needs_models_of_one_task():
    with pytest.raises(ValueError, match="got none"):
        dispersion_by_length({})
    found = {
        task.name: measure_dispersion(model(), task, [6], examples=1)
        for task in (SMALL[2], SMALL[4])
    }
    with pytest.raises(ValueError, match="the same task; got 2back, flip-flop"):
        dispersion_by_length(found)
