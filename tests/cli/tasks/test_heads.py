import csv
import json

import pytest
from typer.testing import CliRunner

from adasparse.analysis import measure_dispersion
from adasparse.cli.main import app
from adasparse.longcontext.runs import load_task_run
from adasparse.longcontext.tasks import find_task
from adasparse.longcontext.train import train_task
from support.small_language import language_run
from support.small_tasks import task_recipe, task_run


def invoke(*arguments):
    return CliRunner().invoke(app, ["tasks", "heads", *map(str, arguments)])


def fails(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    return result.stderr


@pytest.fixture(scope="module")
def softmax_run(tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "softmax"
    return train_task(task_recipe(output, attention="softmax", max_steps=2))


def test_numbers_figure_and_table(softmax_run, tmp_path):
    out = tmp_path / "new" / "heads"
    options = ("--lengths", "12,4", "--examples", "3", "--out", out)
    result = invoke(task_run(), softmax_run, *options, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert json.loads((out / "dispersion.json").read_text()) == found
    for run, each in zip((task_run(), softmax_run), found, strict=True):
        model, recipe = load_task_run(run)
        expected = measure_dispersion(model, find_task("copy"), [4, 12], examples=3)
        own = {"run": str(run), "seed": 3, "train_length": recipe.lengths[1]}
        assert each == own | expected.to_dict()
    assert {x.name for x in out.iterdir()} == {
        f"dispersion.{x}" for x in ("json", "svg", "png", "csv")
    }
    rows = list(csv.DictReader((out / "dispersion.csv").read_text().splitlines()))
    assert {row["run"] for row in rows} == {"asentmax-adaptive + nape", "softmax + nape"}
    assert len(rows) == 2 * 3 * 2

    lines = invoke(task_run(), softmax_run, *options).stdout.splitlines()
    assert lines[0] == "copy, asentmax-adaptive + nape"
    assert lines[1].split()[:7] == ["layer", "head", "alpha", "beta", "gamma", "entropy", "4"]
    first, second = (line.split() for line in lines[2:4])
    heads = found[0]["lengths"][1]["heads"]
    assert first[:5] == ["0", "0", f"{heads[0]['alpha']:.3f}", "-", "-"]
    assert second[3:6] == [f"{heads[1]['beta']['mean']:.3f}", "±", f"{heads[1]['beta']['std']:.3f}"]
    assert second[-1] == f"{heads[1]['relevant']:.1%}"
    assert lines[5] == "copy, softmax + nape"
    assert lines[-4:] == [str(out / f"dispersion.{x}") for x in ("json", "svg", "png", "csv")]


def test_lengths_are_multiples_of_the_training_length(tmp_path):
    result = invoke(task_run(), "--max-factor", "4", "--examples", "1", "--out", tmp_path, "--json")
    (found,) = json.loads(result.stdout)
    assert [x["length"] for x in found["lengths"]] == [5, 10, 20]


def test_runs_that_differ_in_nothing_else_go_by_their_folders(tmp_path, monkeypatch):
    monkeypatch.setattr("adasparse.analysis.figures.style.render", lambda *_: b"<svg/>")
    runs = [
        train_task(task_recipe(tmp_path / name, attention="softmax", max_steps=1, seed=seed))
        for name, seed in (("a", 1), ("b", 2), ("c", 2))
    ]
    options = ("--lengths", "5", "--examples", "1", "--out", tmp_path / "out")

    def named(*given):
        text = invoke(*given, *options).stdout
        return [line for line in text.splitlines() if line.startswith("copy, ")]

    assert named(runs[0]) == ["copy, softmax + nape"]
    assert named(runs[0], runs[0]) == ["copy, softmax + nape"]
    assert named(*runs[:2]) == [f"copy, softmax + nape, seed {i}" for i in (1, 2)]
    assert named(*runs) == [f"copy, {run}" for run in runs]


def test_mistakes_are_told_without_a_traceback(tmp_path):
    out = ("--out", tmp_path / "out")
    assert "there is no" in fails(tmp_path / "nothing", *out)
    assert "must be one of 'adasparse tasks train'" in fails(language_run(), *out)
    assert "got '5,x'" in fails(task_run(), "--lengths", "5,x", *out)
    other = train_task(task_recipe(tmp_path / "2back", task="2back", max_steps=1))
    assert "same task; got 2back, copy" in fails(task_run(), other, *out)
    assert "at least 3 for 2back; got 2" in fails(other, "--lengths", "8,2", *out)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    assert invoke(task_run(), "--out", tmp_path / "file").exit_code == 2
    assert invoke(task_run(), *out, "--examples", "0").exit_code == 2


def test_help_ends_with_an_example():
    last = invoke("--help").stdout.strip().splitlines()[-1].strip()
    assert last.startswith("Example: adasparse tasks heads ")
