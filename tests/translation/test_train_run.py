"""What a finished training leaves: a folder that anyone can load."""

import json
import os
import sys
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from adasparse.integrations.huggingface.measure import current_alpha
from adasparse.training import read_recipe
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.runs import load_run
from adasparse.translation.train import train
from support.small_runs import log_of, results_of, run, small_data, small_recipe, small_run

LOAD = """
import sys, torch
import adasparse.integrations.huggingface
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer(["zwei drei"], return_tensors="pt")
torch.set_num_threads(1)
print(type(model).__name__, model(**inputs, decoder_input_ids=inputs.input_ids).logits.sum().item())
print(tokenizer.decode(model.generate(**inputs, num_beams=1)[0], skip_special_tokens=True))
"""


def test_a_run_loads_in_another_program():
    model, tokenizer = load_run(small_run())
    inputs = tokenizer(["zwei drei"], return_tensors="pt")
    expected = model(**inputs, decoder_input_ids=inputs.input_ids).logits.sum().item()
    written = tokenizer.decode(model.generate(**inputs, num_beams=1)[0], skip_special_tokens=True)
    done = run([sys.executable, "-W", "error", "-c", LOAD, str(small_run())])
    assert done.returncode == 0, done.stderr
    (name, total), text = done.stdout.splitlines()[0].split(), done.stdout.splitlines()[1]
    assert name == "MarianMTModel"
    assert abs(float(total) - expected) < 1e-3 * abs(expected)
    assert text == written


def test_nothing_in_a_run_is_a_pickle():
    kinds = set()
    for path in small_run().rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            kinds.add(path.suffix if "tfevents" not in path.name else "tfevents")
            assert data[:1] != b"\x80", path  # how pickles of protocol 2 and later begin
            assert not zipfile.is_zipfile(path), path  # what torch.save writes
            assert b"cposix" not in data, path
            assert path.suffix not in (".bin", ".pt", ".pth", ".pkl"), path
    assert kinds == {".safetensors", ".json", ".jsonl", ".yaml", ".md", "tfevents"}


def test_the_files_of_a_run_are_those_promised():
    names = {path.name for path in small_run().iterdir()}
    assert names == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("tokenizer_config.json", "README.md", "results.json", "recipe.yaml", "run.json"),
        *("log.jsonl", "checkpoints", "tensorboard"),
    }
    recipe = read_recipe(TranslationRecipe, small_run() / "recipe.yaml")
    assert recipe == small_recipe(small_run())


def test_the_model_is_the_candidate_that_was_chosen():
    results = results_of(small_run())
    checkpoints = small_run() / "checkpoints"
    weights = {
        "last": load_file(checkpoints / "checkpoint-12" / "model.safetensors"),
        "best": load_file(checkpoints / "checkpoint-6" / "model.safetensors"),
    }
    others = load_file(checkpoints / "checkpoint-8" / "model.safetensors")
    weights["average of 2"] = {
        name: ((x.double() + others[name].double()) / 2).float()
        for name, x in weights["last"].items()
    }
    model = load_file(small_run() / "model.safetensors")
    assert model.keys() == weights[results["model"]].keys()
    same = [
        key
        for key, x in weights.items()
        if all(torch.equal(model[name], x[name]) for name in model)
    ]
    assert same == [results["model"]]


def test_the_model_card_tells_of_data_settings_scores_and_alpha():
    card = (small_run() / "README.md").read_text("utf-8")
    model, _ = load_run(small_run())
    results = results_of(small_run())
    scores = results["candidates"][results["model"]]
    assert "# Translation de → en" in card
    assert "52 sentence pairs to train on, 8 for development" in card
    assert "| learning_rate | 0.01 |" in card
    assert f"| {results['model']} | {scores['loss']:.4f} | {scores['bleu']:.2f} |" in card
    assert "| attention | head 1 | head 2 |" in card
    for name, alpha in current_alpha(model).items():
        assert f"| {name} | {alpha[0]:.3f} | {alpha[1]:.3f} |" in card
    softmax = (small_run("softmax") / "README.md").read_text("utf-8")
    assert "softmax attention" in softmax
    assert "α by head" not in softmax


def scalars(folder):
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [x.step for x in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_each_training_has_its_own_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "elsewhere"))
    before = dict(os.environ)
    for name in "ab":
        train(small_recipe(tmp_path / name, max_steps=3, eval_steps=3))
    assert dict(os.environ) == before
    assert not (tmp_path / "elsewhere").exists()
    for name in "ab":
        found = scalars(tmp_path / name)
        assert found["train/loss"] == [3]
        assert found["eval/bleu"] == [3]
        assert len([tag for tag in found if "alpha/" in tag]) == 6
        assert len([tag for tag in found if "density/" in tag]) == 6


def test_the_log_has_loss_scores_and_every_alpha():
    lines = log_of(small_run())
    losses = [x for x in lines if "loss" in x]
    scores = [x for x in lines if "dev_loss" in x]
    assert [x["step"] for x in losses] == [3, 6, 9, 12]
    assert [x["step"] for x in scores] == [6, 12]
    assert losses[0].keys() == {"step", "loss", "grad_norm", "learning_rate", "epoch", "alpha"}
    assert scores[0].keys() == {"step", "dev_loss", "dev_bleu", "dev_chrf", "epoch"}
    rates = [x["learning_rate"] for x in losses]
    factors = [2 / 4, (4 / 5) ** 0.5, (4 / 8) ** 0.5, (4 / 11) ** 0.5]
    assert rates == pytest.approx([0.01 * x for x in factors])


def test_epochs_count_how_often_the_data_were_seen(tmp_path):
    trained = train(small_recipe(tmp_path / "run", accumulate=2))
    per_epoch = 12 / log_of(small_run())[-1]["epoch"]
    assert log_of(trained)[-1]["epoch"] == 24 / per_epoch


def test_threads_are_given_back(tmp_path):
    before, inside = torch.get_num_threads(), []

    class Watch:
        def __getattr__(self, name):
            return lambda *args, **kwargs: inside.append(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        train(small_recipe(tmp_path / "run", threads=1, max_steps=1), progress=Watch())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(inside) == {1}


def test_seeds_differ(tmp_path):
    other = train(small_recipe(tmp_path / "run", seed=4, max_steps=3, eval_steps=3))
    assert log_of(other)[0]["loss"] != log_of(small_run())[0]["loss"]


def test_data_must_be_prepared(tmp_path):
    with pytest.raises(FileNotFoundError, match="make one with `adasparse prepare`"):
        train(small_recipe(tmp_path / "run", data=str(tmp_path / "missing")))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path):
    """A few hundred steps more take no more memory."""
    resident = []

    class Watch:
        def on_step_end(self, args, state, control, **kwargs):
            with open("/proc/self/statm") as file:
                resident.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

        def __getattr__(self, name):
            return lambda *args, **kwargs: None

    changes = {"max_steps": 600, "eval_steps": 600, "save_steps": 600, "log_steps": 10}
    train(small_recipe(tmp_path / "run", data=str(small_data(600)), **changes), progress=Watch())
    first, last = np.mean(resident[150:250]), np.mean(resident[500:600])
    assert last - first < 8 * 2**20, json.dumps([first, last])
