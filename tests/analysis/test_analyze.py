"""From runs and sentences to measures and figures."""

import json

import pytest

from adasparse.analysis import analyze, record
from adasparse.analysis.measures.collect import measure_heads
from adasparse.analysis.runs import Run
from support.sample_models import SOURCE, TARGET, dense, sparse, tokenizer

ALL = {
    "alpha_trajectories",
    "alpha_histogram",
    "density_histogram",
    "head_density",
    "head_diversity",
    "positional_confidence",
    "positional_heads",
    "merging_heads",
    "interrogation_heads",
    "sparsity_extremes",
}


def make_run(model, name, folder, *, log=()):
    return Run(
        name=name, folder=folder, model=model, tokenizer=tokenizer(), log=list(log), recipe={}
    )


def log_of(model):
    names = [
        f"model.{side}.layers.{i}.self_attn" for side in ("encoder", "decoder") for i in (0, 1)
    ]
    return [
        {"step": s, "loss": 1.0, "alpha": {n: [1.5 + s / 100] * 4 for n in names}} for s in (1, 2)
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    adaptive = sparse("marian")
    return [
        make_run(dense("marian"), "softmax", folder),
        make_run(adaptive, "adaptive", folder, log=log_of(adaptive)),
    ]


@pytest.fixture(scope="module")
def analysis(runs):
    return analyze(runs, SOURCE, TARGET, resamples=20)


def test_every_figure_is_made(analysis):
    assert {figure.spec.name for figure in analysis.figures} == ALL
    assert analysis.skipped == {}
    assert analysis.languages == {"source": "de", "target": "en"}


def test_measures_are_those_of_a_recording(runs, analysis):
    recording = record(runs[1].model, tokenizer(), SOURCE, TARGET, name="adaptive")
    expected = measure_heads(recording, resamples=20)
    for (kind, key), sums in expected.sums.items():
        if key == "rarity" and kind == "decoder":
            continue  # by how often tokens are written, not read
        assert (analysis.measures[1].sums[kind, key] == sums).all(), (kind, key)


def test_files_are_written(analysis, tmp_path, monkeypatch):
    monkeypatch.setattr("adasparse.analysis.figures.style.render", lambda *_: b"<svg/>")
    paths = analysis.write(tmp_path / "out")
    assert len(paths) == 2 + 3 * len(ALL)  # the report, measures, and each figure
    assert all(path.is_file() for path in paths)
    found = json.loads((tmp_path / "out" / "measures.json").read_text(encoding="utf-8"))
    assert found["sentences"] == len(SOURCE)
    assert [run["name"] for run in found["runs"]] == ["softmax", "adaptive"]
    group = found["runs"][1]["groups"][0]
    expected = analysis.measures[1].values("encoder", "density")
    assert group["values"]["density"][1][2] == pytest.approx(expected[1, 2], rel=1e-5)
    density = analysis.measures[1].by_sentence("encoder", "density")[:, 1, 2]
    extremes = group["extremes"][1][2]
    assert density[extremes["least"]] == density.max() > density.min() == density[extremes["most"]]
    assert (tmp_path / "out" / "figures" / "head_density.csv").is_file()


def test_the_payload_has_the_sentences_of_the_figures(analysis):
    payload = analysis.payload()
    for run in payload["runs"]:
        assert sorted(sentence["id"] for sentence in run["sentences"]) == list(range(len(SOURCE)))
        for sentence in run["sentences"]:
            assert sentence["source_text"] == SOURCE[sentence["id"]]


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_models_of_one_sequence_are_analyzed(name, tmp_path):
    runs = [make_run(dense(name), "dense", tmp_path), make_run(sparse(name), "sparse", tmp_path)]
    analysis = analyze(runs, SOURCE, resamples=10)
    names = {figure.spec.name for figure in analysis.figures}
    assert names >= {"head_density", "positional_heads", "merging_heads", "sparsity_extremes"}
    assert set(analysis.skipped) == ALL - names
    assert ("interrogation_heads" in names) == (name == "bert")


def test_progress_is_told(runs):
    told = []
    analyze(runs[1:], SOURCE[:3], TARGET[:3], resamples=5, progress=lambda *x: told.append(x))
    assert told[:3] == [("measuring adaptive", i, 3) for i in (1, 2, 3)]
    assert told[-1] == ("drawing", 1, 1)


def test_a_single_sentence_is_enough(runs):
    analysis = analyze(runs, ["Ja."], ["Yes."], resamples=5)
    assert "interrogation_heads" in analysis.skipped
    assert "head_density" in {figure.spec.name for figure in analysis.figures}


def test_mistakes_are_named(runs):
    with pytest.raises(ValueError, match="at least one run"):
        analyze([], SOURCE, TARGET)
    with pytest.raises(ValueError, match="at least one sentence"):
        analyze(runs, [], [])
    with pytest.raises(ValueError, match=f"got {len(SOURCE)} and 1"):
        analyze(runs, SOURCE, TARGET[:1])
    with pytest.raises(ValueError, match="sentence 1 is"):
        analyze(runs, ["Ja.", " "], ["Yes.", "x"])
    with pytest.raises(ValueError, match="with targets"):
        analyze(runs, SOURCE)
