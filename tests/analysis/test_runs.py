"""Runs are loaded from their folders."""

import json
from pathlib import Path

import pytest

from adasparse.analysis.runs import load_run, unique_names
from support.sample_models import dense, sparse, tokenizer


def save(model, folder, *, log=(), recipe=None):
    model.float().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    if log:
        text = "".join(json.dumps(line) + "\n" for line in log)
        (folder / "log.jsonl").write_text(text, encoding="utf-8")
    if recipe is not None:
        (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["marian", "llama", "bert", "gpt2", "t5"])
@pytest.mark.parametrize("make", [dense, sparse])
def test_any_model_is_loaded(name, make, tmp_path):
    model = make(name)
    run = load_run(save(model, tmp_path / "run"))
    assert type(run.model).__name__ == type(model).__name__
    assert not run.model.training
    assert run.name == "run"
    assert run.log == []
    assert run.recipe == {}


def test_the_log_tells_how_alpha_moved(tmp_path):
    log = [
        {"step": 5, "loss": 3.0, "alpha": {"a": [1.5, 1.4]}},
        {"step": 5, "dev_loss": 2.0},
        {"step": 10, "loss": 2.0, "alpha": {"a": [1.6, 1.3]}},
    ]
    run = load_run(save(sparse("marian"), tmp_path / "x", log=log, recipe="seed: 3\n"), name="y")
    assert run.name == "y"
    assert run.recipe == {"seed": 3}
    assert run.alpha_history() == ([5, 10], {"a": [[1.5, 1.4], [1.6, 1.3]]})


def test_folders_without_a_model_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is none at"):
        load_run(tmp_path / "none")
    with pytest.raises(ValueError, match="has none"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_run(tmp_path)
    folder = save(dense("bert"), tmp_path / "x", recipe="a: [")
    with pytest.raises(ValueError, match="must be YAML"):
        load_run(folder)


def test_names_are_as_long_as_they_must_be(tmp_path):
    assert unique_names([Path("/a/b/x"), Path("/a/c/y")]) == ["x", "y"]
    assert unique_names([Path("/a/b/x"), Path("/a/c/x")]) == ["b/x", "c/x"]
    with pytest.raises(ValueError, match="different folders"):
        unique_names([tmp_path, tmp_path])
