import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app
from adasparse.longcontext.recipe import LanguageRecipe
from adasparse.training import read_recipe
from support.small_language import held_out, language_file, language_run, text_file

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("lm-*.yaml"))


def invoke(*arguments):
    return CliRunner().invoke(app, ["lm", *map(str, arguments)])


def fails(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    return result.stderr


def test_recipes_are_valid():
    assert {path.stem for path in RECIPES} >= {"lm-tiny", "lm-small"}
    for path in RECIPES:
        read_recipe(LanguageRecipe, path, ["data=x", "output=x"])


def test_train_evaluate_and_generate(tmp_path):
    run = tmp_path / "run"
    result = invoke(
        *("train", language_file(), f"data={text_file()}", f"output={run}", "max_steps=2"),
        "positions=rope",
    )
    assert result.exit_code == 0, result.output
    assert "on held-out text | attn:asentmax positions:rope context:16" in result.stdout

    result = invoke("eval", run, "--text", held_out(), "--lengths", "100,32", "--needles", 1,
                    "--tokens", 200, "--json")  # fmt: skip
    found = json.loads(result.stdout)
    assert [x["length"] for x in found["perplexity"]["lengths"]] == [32, 100]
    assert "for a needle" not in result.stderr
    assert {(x["length"], x["trials"]) for x in found["needles"]["scores"]} == {(100, 1)}

    result = invoke("eval", run, "--text", held_out(), "--lengths", "32", "--needles", 0)
    assert result.stdout.startswith("perplexity\n      32")
    result = invoke("generate", run, "--prompt", "the sea", "--tokens", 3, "--temperature", 0)
    assert result.stdout.startswith("the sea")


def test_a_dry_run_writes_nothing(tmp_path):
    where = f"data={text_file()}", f"output={tmp_path / 'run'}"
    plan = json.loads(invoke("train", language_file(), *where, "--dry-run", "--json").stdout)
    assert plan["examples"] == 24
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("train", "RECIPE", "output=x"), "data is missing"),
        (("train", "RECIPE", "output=x", "data=nothing.txt"), "here is no file nothing.txt"),
        (("eval", "RUN", "--text", "nothing.txt"), "here is no file nothing.txt"),
        (("eval", "nothing", "--text", "TEXT"), "there is no nothing/recipe.yaml"),
        (("eval", "RUN", "--text", "TEXT", "--lengths", "0"), "got '0'"),
        (("generate", "RUN", "--prompt", ""), "must have a character"),
    ],
    ids=str,
)
def test_mistakes_are_told_without_a_traceback(arguments, complaint):
    known = {"RECIPE": language_file, "RUN": language_run, "TEXT": held_out}
    assert complaint in fails(*(known[x]() if x in known else x for x in arguments))
