"""Figures are drawn, saved with their numbers, and leave everything else alone."""

import csv
import io

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf

from adasparse.analysis import Recorder, figures, record
from adasparse.analysis.figures import AlphaHistory, HeadPicture
from adasparse.analysis.figures.sentences import picture
from adasparse.analysis.measures.collect import measure_heads
from support.sample_models import SOURCE, TARGET, dense, sparse, tokenizer

LIMIT = 300_000  # bytes of a file


@pytest.fixture(scope="module")
def runs():
    models = {
        "softmax": dense("marian"),
        "1.5": sparse("marian", alpha="fixed", init_alpha=1.5),
        "$\\alpha_{x$": sparse("marian"),
    }
    return [
        measure_heads(record(model, tokenizer(), SOURCE, TARGET, name=name), resamples=50)
        for name, model in models.items()
    ]


def history(header):
    generator = np.random.default_rng(0)
    return AlphaHistory(
        header=header,
        steps=[10, 20, 30],
        alpha={
            name: (1 + generator.random((3, 4))).tolist()
            for kind in header.kinds
            for name in header.modules[kind]
        },
    )


def numbers(figure):
    """The numbers as they stand in the file."""
    return list(csv.DictReader(io.StringIO(figures.style._csv(figure.numbers))))


def pixels(figure):
    image = figures.render(figure, "png")
    return matplotlib.image.imread(io.BytesIO(image))


@pytest.mark.parametrize(
    "name",
    [
        "alpha_histogram",
        "density_histogram",
        "head_density",
        "head_diversity",
        "positional_confidence",
    ],
)
def test_figures_are_saved_with_their_numbers(runs, name, tmp_path):
    figure = getattr(figures, name)(runs)
    paths = figures.save_figure(figure, tmp_path / "deep" / "a.b")
    assert [path.name for path in paths] == ["a.b.svg", "a.b.png", "a.b.csv"]
    assert all(0 < path.stat().st_size < LIMIT for path in paths)
    assert b"<svg" in paths[0].read_bytes()[:1000]
    assert pixels(figure).min() < 0.9
    with paths[2].open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(figure.numbers) > 0
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["a.b.csv", "a.b.png", "a.b.svg"]


def test_the_numbers_are_those_measured(runs):
    rows = numbers(figures.head_density(runs))
    assert {row["run"] for row in rows} == {"1.5", "$\\alpha_{x$"}
    for row in rows:
        run = next(run for run in runs if run.header.name == row["run"])
        value = run.values(row["attention"], "density")[int(row["layer"]) - 1, int(row["head"]) - 1]
        assert float(row["density"]) == pytest.approx(value, rel=1e-5)
    rows = numbers(figures.density_histogram(runs))
    total = sum(int(row["count"]) for row in rows if row["attention"] == "encoder")
    assert total == 2 * len(SOURCE) * 2 * 4
    rows = numbers(figures.alpha_histogram(runs))
    assert {row["run"] for row in rows} == {"$\\alpha_{x$"}
    assert sum(int(row["count"]) for row in rows) == (2 + 3 + 3) * 4
    rows = numbers(figures.positional_confidence(runs, threshold=0.2))
    for row in rows:
        assert (float(row["weight"]) >= 0.2) == (row["above threshold"] == "True")


def test_softmax_alone_is_drawn(runs):
    assert {row["run"] for row in figures.head_density(runs[:1]).numbers} == {"softmax"}
    with pytest.raises(ValueError, match="differ in alpha; got none"):
        figures.alpha_histogram(runs[:2])


def test_trajectories_show_every_head(runs):
    figure = figures.alpha_trajectories([history(runs[2].header), history(runs[1].header)])
    assert len(figure.numbers) == 2 * 3 * (2 + 3 + 3) * 4
    assert len(figures.render(figure, "svg")) < LIMIT
    with pytest.raises(ValueError, match="whose log has alpha; got none"):
        figures.alpha_trajectories([])


def test_zeros_are_blank_and_small_weights_are_not():
    weights = np.array([[0.0, 1e-6], [1.0, 0.0]])
    one = HeadPicture(run="r", title="t", weights=weights, queries="ab", keys="cd")
    figure = figures.head_pictures([[one]])
    image = pixels(figure)
    axes = figure.axes[0]
    height = image.shape[0]

    def color(i, j):
        x, y = axes.transData.transform((j + 0.2, i + 0.2)) * 150 / figure.dpi
        return image[height - int(y) - 1, int(x), :3]

    assert (color(0, 0) == 1).all()
    assert (color(1, 1) == 1).all()
    assert color(0, 1).min() < 0.85
    assert color(1, 0).max() < 0.3
    assert [(row["query"], row["key"]) for row in figure.numbers] == [(0, 1), (1, 0)]


def test_any_token_can_stand_at_an_axis(tmp_path):
    hostile = [
        "$x",
        "$\\frac{$",
        "a\nb\0",
        "مرحبا",
        "👩‍👩‍👧",
        "日本語",
        "x" * 10_000,
        "",
        "<script>",
        "\u202e",
        "_^{",
    ]
    n = len(hostile)
    one = HeadPicture(
        run="$r$",
        title="$$",
        weights=np.eye(n),
        queries=hostile,
        keys=hostile,
        words=[(0, 2)],
        marked=[1],
    )
    paths = figures.save_figure(figures.head_pictures([[one], [one, one]]), tmp_path / "x")
    text = paths[0].read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert paths[0].stat().st_size < LIMIT
    with paths[2].open(encoding="utf-8", newline="") as file:
        assert {row["key token"] for row in csv.DictReader(file)} >= {"$x", "日本語", "x" * 10_000}


def test_the_same_numbers_give_the_same_file(runs):
    first, second = (figures.render(figures.head_diversity(runs), "svg") for _ in range(2))
    assert first == second


def test_global_settings_are_left_alone(runs):
    before = dict(matplotlib.rcParams)
    figures.render(figures.head_diversity(runs), "png")
    assert dict(matplotlib.rcParams) == before
    assert Gcf.get_all_fig_managers() == []  # figures that pyplot would show


def test_empty_pictures_are_refused():
    with pytest.raises(ValueError, match="at least one picture"):
        figures.head_pictures([])
    bert = measure_heads(record(dense("bert"), tokenizer(), SOURCE[:2]), resamples=5)
    with pytest.raises(ValueError, match="needs a run with decoder attention"):
        figures.positional_confidence([bert], kind="decoder")


def test_models_of_one_sequence_are_drawn():
    header = Recorder(sparse("llama"), tokenizer()).header
    run = measure_heads(record(sparse("llama"), tokenizer(), SOURCE), resamples=5)
    assert run.header.kinds == header.kinds == ("decoder",)
    for name in ("alpha_histogram", "density_histogram", "head_density", "head_diversity"):
        assert getattr(figures, name)([run]).numbers
    assert figures.positional_confidence([run], kind="decoder").numbers


def test_matrices_show_a_limited_number_of_tokens():
    """One sentence of 250 words once took 7 GB and minutes to draw."""
    tokens = [f"w{i}" for i in range(700)]
    long = HeadPicture(
        run="r",
        title="t",
        weights=np.full((700, 700), 1 / 700),
        queries=tokens,
        keys=tokens,
        words=[(2, 4), (63, 65), (600, 602)],
        marked=[1, 64, 699],
    )
    figure = figures.head_pictures([[long, long]])
    assert len(figure.numbers) == 2 * 64 * 64
    assert figure.numbers[0]["head"] == "t, first 64 of 700 tokens"
    assert max(figure.get_size_inches()) < 30
    [axes] = figure.axes[:1]
    assert len(axes.get_xticklabels()) == 64 and len(axes.patches) == 1


def test_trajectories_have_a_limited_number_of_steps(runs):
    header = runs[2].header
    steps = list(range(1, 20_001))
    alpha = {
        name: np.linspace(1.1, 1.9, len(steps))[:, None].repeat(4, 1).tolist()
        for name in header.modules["encoder"]
    }
    long = AlphaHistory(header=header, steps=steps, alpha=alpha)
    rows = figures.alpha_trajectories([long]).numbers
    assert len(rows) == 500 * 4 * len(alpha)
    assert (rows[0]["step"], rows[-1]["step"]) == (1, 20_000)


def test_titles_tell_that_small_weights_were_not_recorded():
    recording = record(dense("bert"), tokenizer(), SOURCE[:1], top=2)
    measures = measure_heads(recording, resamples=5)
    shown = picture(measures, recording.sentences[0], ("encoder", 1, 0), note="x")
    assert shown.title.endswith("x, largest 2 of each row")
    assert (np.count_nonzero(shown.weights, axis=1) == 2).all()
