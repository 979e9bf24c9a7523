"""Accuracy of long-context models against length."""

import pytest

from adasparse.analysis.figures import accuracy_by_length, render
from adasparse.longcontext import wilson_interval


def evaluation(attention, seed, shares, *, task="sort", examples=10):
    scores = [
        {"length": length, "examples": examples, "exact_match": share}
        for length, share in shares.items()
    ]
    return {
        "task": task,
        "attention": attention,
        "positions": "nape",
        "seed": seed,
        "train_length": 64,
        "scores": scores,
        "stopped": None,
    }


def test_seeds_of_a_method_count_together():
    figure = accuracy_by_length(
        [
            evaluation("softmax", 1, {64: 1.0, 128: 0.3}),
            evaluation("softmax", 2, {64: 0.9, 128: 0.0, 256: 0.2}),
            evaluation("entmax", 1, {64: 1.0}),
            evaluation("entmax", 1, {64: 0.5}, task="copy"),
        ]
    )
    rows = {(x["task"], x["method"], x["length"]): x for x in figure.numbers}
    assert len(rows) == 5
    row = rows["sort", "softmax + nape", 128]
    assert (row["seeds"], row["examples"], row["exact_match"]) == (2, 20, 0.15)
    assert (row["low"], row["high"]) == wilson_interval(3, 20)
    assert rows["sort", "softmax + nape", 256]["examples"] == 10
    assert [axes.get_title() for axes in figure.axes] == ["copy", "sort"]
    colors = {line.get_label(): line.get_color() for line in figure.axes[1].lines}
    copied = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
    assert copied["entmax + nape"] == colors["entmax + nape"] != colors["softmax + nape"]
    assert render(figure, "svg").startswith(b"<?xml")


def test_every_method_is_in_the_legend():
    figure = accuracy_by_length(
        [evaluation("softmax", 1, {64: 1.0}, task="copy"), evaluation("entmax", 1, {64: 1.0})]
    )
    assert [x.get_text() for x in figure.legends[0].get_texts()] == [
        "entmax + nape",
        "softmax + nape",
    ]


def test_there_must_be_something_to_draw():
    with pytest.raises(ValueError, match="needs an evaluation; got none"):
        accuracy_by_length([])
