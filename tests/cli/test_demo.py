"""The demo, small: the whole way from a grammar to a report."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app
from adasparse.demo import run as demo
from adasparse.translation.runs import load_run

SMALL = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "ffn": 16}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(demo, "SIZES", {"train": 300, "dev": 8, "test": 12})
    monkeypatch.setattr(demo, "VOCABULARY", 600)
    monkeypatch.setattr(demo, "RECIPE", {**demo.RECIPE, **SMALL, "warmup_steps": 4})


def run(*arguments):
    return CliRunner().invoke(app, ["demo", "--steps", "12", *arguments])


def test_shows_translations_heads_and_what_to_do_next(tmp_path):
    out = tmp_path / "demo"
    result = run("--out", str(out))
    assert result.exit_code == 0, result.output
    assert "BLEU" in result.stdout
    assert "encoder.layers.0.self_attn" in result.stdout
    assert f"adasparse explore {out}/run" in result.stdout
    written = json.loads((out / "results.json").read_text())
    assert {"bleu", "exact_match", "tokens_per_second", "alpha"} <= set(written)
    model, _ = load_run(out / "run")
    assert len(written["alpha"]) == 3
    assert all(1 < x < 2 for heads in written["alpha"].values() for x in heads)
    assert model.config.d_model == 16
    assert (out / "report" / "index.html").stat().st_size > 10_000


def test_a_folder_in_use_is_told_before_the_corpus_is_made(tmp_path, monkeypatch):
    """It used to be told after half a minute."""
    monkeypatch.setattr("adasparse.demo.run.generate", lambda *_, **__: 1 / 0)
    (tmp_path / "mine.txt").write_text("mine")
    assert "must be new, empty, or that of" in run("--out", str(tmp_path)).stderr


def test_a_demo_replaces_an_earlier_one_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("adasparse.analysis.figures.style.render", lambda *_: b"<svg/>")
    (tmp_path / "mine.txt").write_text("mine")
    refused = run("--out", str(tmp_path))
    assert refused.exit_code == 1
    assert "must be new, empty, or that of an earlier demo" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    out = tmp_path / "demo"
    first = run("--out", str(out), "--pair", "en-de", "--attention", "softmax", "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["pair"] == "en-de"
    assert_test_sentences_are_not_trained_on(out / "corpus")
    again = run("--out", str(out), "--attention", "entmax", "--json")
    assert again.exit_code == 0, again.output
    assert set(json.loads(again.stdout)["alpha"]["model.encoder.layers.0.self_attn"]) == {1.5}


def assert_test_sentences_are_not_trained_on(corpus):
    for lang in ("en", "de"):
        trained = set((corpus / f"train.{lang}").read_text().splitlines())
        assert len(trained) == 300
        assert not trained & set((corpus / f"test.{lang}").read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--pair", "xx-en"], "de-en"), (["--attention", "dense"], "softmax, entmax, adaptive")],
    ids=str,
)
def test_unknown_choices_are_named(tmp_path, arguments, complaint):
    result = run("--out", str(tmp_path / "demo"), *arguments)
    assert result.exit_code == 1
    assert complaint in result.stderr


def test_a_missing_package_is_told_by_its_extra():
    """It was a traceback: the error was not of the kind that commands report in one line."""
    code = (
        "import sys; sys.modules['num2words'] = None; sys.argv = ['adasparse', 'demo']\n"
        "from adasparse.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "Error: adasparse.demo needs num2words: pip install 'adasparse[translation]'."
    )
