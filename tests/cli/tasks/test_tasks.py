import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app
from adasparse.longcontext import wilson_interval
from adasparse.longcontext.recipe import TaskRecipe
from adasparse.training import read_recipe
from support.small_tasks import task_file, task_run

RECIPES = sorted((Path(__file__).parents[3] / "recipes/tasks").glob("*.yaml"))


def invoke(*arguments):
    return CliRunner().invoke(app, ["tasks", *map(str, arguments)])


def fails(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    return result.stderr


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_are_valid(path):
    recipe = read_recipe(TaskRecipe, path, ["output=x"])
    assert path.stem.startswith(recipe.task.replace("-", ""))


def test_there_are_recipes_of_both_sizes():
    names = {path.stem for path in RECIPES}
    for task in ("sort", "copy", "reverse", "mqmtar", "flipflop"):
        assert {f"{task}-tiny", f"{task}-paper"} <= names


def test_train_evaluate_and_draw(tmp_path):
    run = tmp_path / "run"
    result = invoke("train", task_file(), f"output={run}", "max_steps=2", "attention=ssmax")
    assert result.exit_code == 0, result.output
    assert "exact match 5:" in result.stdout
    assert f"Next: adasparse tasks eval {run}" in result.stdout
    assert "step 2/2" in result.stderr

    result = invoke("eval", run, "--lengths", "12,4", "--examples", "3", "--json")
    found = json.loads(result.stdout)
    assert [x["length"] for x in found["scores"]] == [4, 12]
    for score in found["scores"]:
        right = round(3 * score["exact_match"])
        assert (score["exact_low"], score["exact_high"]) == wilson_interval(right, 3)
    table = invoke("eval", run, "--max-factor", "2", "--examples", "2").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["length", "5", "10"]

    result = invoke("plot", tmp_path, "--out", tmp_path / "a.svg")
    assert result.stdout.split() == [str(tmp_path / f"a.{x}") for x in ("svg", "png", "csv")]
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [(row["length"], row["method"]) for row in rows] == [
        ("5", "ssmax + nape"),
        ("10", "ssmax + nape"),
    ]
    assert "ssmax + nape" in (tmp_path / "a.svg").read_text()


def test_sweep_runs_every_combination(tmp_path):
    result = invoke(
        *("sweep", task_file(), "max_steps=2", "eval_examples=1", "--out", tmp_path),
        *("--attention", "softmax", "--attention", "entmax", "--positions", "alibi"),
        *("--seeds", "1", "--lengths", "5", "--examples", "2", "--json"),
    )
    found = json.loads(result.stdout)
    assert [(x["attention"], x["positions"], x["seed"]) for x in found] == [
        ("softmax", "alibi", 1),
        ("entmax", "alibi", 1),
    ]
    assert (tmp_path / "copy-entmax-alibi-1/eval.json").is_file()


def test_a_dry_run_tells_the_plan(tmp_path):
    result = invoke("train", task_file(), f"output={tmp_path / 'run'}", "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["examples"] == 64
    assert plan["hours_at_most"] == plan["seconds_per_step"] * 8 / 3600
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_told_without_a_traceback(tmp_path):
    assert "unknown key 'colour'" in fails("train", task_file(), "output=x", "colour=red")
    assert "output is missing" in fails("train", task_file())
    assert "has files in it" in fails("train", task_file(), f"output={task_run()}")
    assert "there is no" in fails("eval", tmp_path / "nothing")
    assert "got '5,x'" in fails("eval", task_run(), "--lengths", "5,x")
    assert "got 'loud'" in fails("sweep", task_file(), "--attention", "loud", "--out", tmp_path)
    assert "must end in one of .png, .svg" in fails("plot", task_run(), "--out", "a.gif")
    assert "there is no eval.json" in fails("plot", tmp_path, "--out", tmp_path / "a.svg")
