import json

import pytest
import yaml
from typer.testing import CliRunner

from adasparse.cli.main import app
from support.small_runs import SETTINGS, recipe_file, results_of, small_data, small_run


def invoke(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def fails(*arguments):
    """What a command that fails says, without a traceback."""
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    return result.stderr


def where(output, data=None):
    return f"data={data or small_data()}", f"output={output}"


def test_a_dry_run_writes_nothing(tmp_path):
    result = invoke(recipe_file(), *where(tmp_path / "run"), "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["pairs"] == 52
    assert plan["parameters"] > 10_000
    assert plan["epochs"] == SETTINGS["max_steps"] / plan["batches_per_epoch"]
    assert 3 < plan["loss"] < 12
    assert plan["hours_at_most"] == plan["seconds_per_step"] * 12 / 3600
    assert list(tmp_path.iterdir()) == []
    result = invoke(recipe_file(), *where(tmp_path / "run"), "bf16=true", "--dry-run")
    assert "Everything is fine" in result.stdout
    assert "52 pairs" in result.stdout


def test_a_dry_run_finds_data_that_are_not_there(tmp_path):
    missing = tmp_path / "missing"
    assert f"There is no folder {missing}" in fails(
        recipe_file(), *where(tmp_path / "run", missing), "--dry-run"
    )
    message = fails(recipe_file(), *where(tmp_path / "run", tmp_path), "--dry-run")
    assert "is no prepared folder" in message


def test_a_dry_run_finds_damaged_data(tmp_path):
    copy = tmp_path / "data"
    copy.mkdir()
    for path in small_data().rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(small_data())
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    damaged = copy / "train.source.ids.npy"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1  # the size stays
    damaged.write_bytes(data)
    message = fails(recipe_file(), *where(tmp_path / "run", copy), "--dry-run")
    assert "changed: train.source.ids.npy" in message


def test_a_dry_run_finds_a_folder_in_use():
    run = small_run()
    assert "must be a new or empty folder" in fails(recipe_file(), *where(run), "--dry-run")
    assert "width was 16, now 32" in fails(
        recipe_file(), *where(run), "width=32", "--dry-run", "--resume"
    )
    assert invoke(recipe_file(), *where(run), "--dry-run", "--resume").exit_code == 0


def test_missing_keys_are_told_together(tmp_path):
    message = fails(recipe_file(), "widht=3")
    for part in ("data is missing: give data=...", "output is missing", "unknown key 'widht'"):
        assert part in message


def test_a_missing_recipe_is_told(tmp_path):
    assert "there is no file" in fails(tmp_path / "no.yaml", "data=x")


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "notes").write_text("")
    assert "Add --resume" in fails(recipe_file(), *where(tmp_path))


def test_recipes_of_the_project_are_recipes(tmp_path, pytestconfig):
    every = sorted((pytestconfig.rootpath / "recipes").glob("*.yaml"))
    recipes = [x for x in every if not x.stem.startswith("lm-")]  # those are of language models
    assert {"base", "small", "tiny"} <= {x.stem for x in recipes}
    for path in recipes:
        values = yaml.safe_load(path.read_text("utf-8"))
        assert "data" not in values
        changes = ["encoder_layers=1", "decoder_layers=1", "width=16", "heads=2", "ffn=8"]
        result = invoke(path, *where(tmp_path / "run"), *changes, "--dry-run")
        assert result.exit_code == 0, result.stderr


def test_the_result_is_printed(tmp_path):
    result = invoke(recipe_file(), *where(tmp_path / "run"), "max_steps=2", "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed == {"output": str(tmp_path / "run"), **results_of(tmp_path / "run")}


@pytest.mark.parametrize("option", ["--resume", "--dry-run", "--json"])
def test_help_names_options_and_an_example(option):
    result = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "100"})
    assert option in result.stdout
    assert "Example: adasparse train recipes/tiny.yaml data=" in result.stdout
    assert "torchrun" in result.stdout
