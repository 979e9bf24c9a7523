import itertools
import json
import sys
import xml.etree.ElementTree

import pytest

import adasparse.bench
from adasparse.bench.calls import OURS, PACKAGE, SOFTMAX

LENGTHS = (256, 1024, 4096)


@pytest.fixture
def lengths_file(tmp_path, result):
    rows = [
        {"name": name, "shape": [1, 8, length, 64], "ms": speed * length**2, "gib": length / 2**14}
        for name, speed in ((OURS, 1e-5), (SOFTMAX, 5e-5), (PACKAGE, 1e-3))
        for length in LENGTHS
    ]
    rows[-1]["ms"] = None
    path = tmp_path / "lengths.json"
    path.write_text(json.dumps(result("lengths", rows)))
    return path


def test_two_small_figures_are_written_and_named(run, lengths_file, tmp_path):
    pytest.importorskip("matplotlib")
    result = run("plot", lengths_file, "--output", tmp_path / "x.svg")
    assert result.exit_code == 0, result.stderr
    paths = [tmp_path / "x_time.svg", tmp_path / "x_memory.svg"]
    assert result.stdout.split() == list(map(str, paths))
    for path in paths:
        assert xml.etree.ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 300_000


def test_same_numbers_give_the_same_file(run, lengths_file, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("a", "b"):
        run("plot", lengths_file, "--output", tmp_path / f"{name}.svg")
    assert (tmp_path / "a_time.svg").read_bytes() == (tmp_path / "b_time.svg").read_bytes()


def test_lines_hold_the_measured_numbers(lengths_file):
    pytest.importorskip("matplotlib")
    from adasparse.bench import figures

    result = json.loads(lengths_file.read_text())
    axes = figures.time(result).axes[0]
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 3, 2]  # the package ends early
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(1e-5 * 4096**2)
    assert {text.get_text() for text in axes.texts} >= {"torch SDPA, softmax"}
    assert figures.memory(result).axes[0].lines[-1].get_ydata()[-1] == 0.5  # 8 × 4096² floats


def test_labels_that_would_overlap_move_apart(lengths_file):
    pytest.importorskip("matplotlib")
    from adasparse.bench import figures

    axes = figures.memory(json.loads(lengths_file.read_text())).axes[0]  # all the functions alike
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert min(b - a for a, b in itertools.pairwise(heights)) >= figures.LABEL_GAP * 0.999


def test_missing_matplotlib_names_the_extra(run, lengths_file, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "adasparse.bench.figures", raising=False)
    monkeypatch.delattr(adasparse.bench, "figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("plot", lengths_file, "--output", tmp_path / "x.svg")
    assert result.exit_code == 2
    assert "adasparse[analysis]" in result.stderr


def test_only_lengths_in_a_known_format_can_be_drawn(run, lengths_file, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)  # for a name so short that no line of the message breaks it
    result = run("plot", lengths_file, "--output", "x.dance")
    assert result.exit_code == 2
    assert "dance" in result.stderr
    content = json.loads(lengths_file.read_text())
    lengths_file.write_text(json.dumps({**content, "benchmark": "ops"}))
    result = run("plot", lengths_file, "--output", tmp_path / "x.svg")
    assert result.exit_code == 2
    assert "'ops'" in result.stderr
