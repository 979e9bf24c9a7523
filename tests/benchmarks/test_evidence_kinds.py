"""Pieces done by the real commands, at the smallest size: some minutes."""

import gzip
import json
import sys
import time
from dataclasses import replace

import pytest
from benchmarks.evidence.declared import Piece
from benchmarks.evidence.kinds import KINDS
from benchmarks.evidence.report import write_pages
from benchmarks.evidence.report.earlier import CORPORA
from benchmarks.evidence.runner import run_pieces
from benchmarks.evidence.tasks import solved_at
from benchmarks.evidence.trainings import read_log, rounded, training_minutes
from benchmarks.evidence.workshop import Workshop

SIZES = {
    **{"positions": "nape", "alpha": 1.5, "layers": 1, "width": 16, "heads": 2, "ffn": 16},
    **{"batch_size": 2, "learning_rate": 1e-3, "warmup_steps": 2, "schedule": "cosine"},
    **{"log_steps": 2, "eval_steps": 4, "save_steps": 4},
}


@pytest.fixture
def workshop(tmp_path):
    return Workshop(
        work=tmp_path / "work",
        data=tmp_path / "data",
        results=tmp_path / "results",
        python=sys.executable,
    )


def _piece(**changes):
    settings = {
        **SIZES,
        **{"task": "copy-4", "attention": "asentmax", "min_length": 2, "max_length": 4},
        **{"eval_lengths": [4], "eval_examples": 4, "max_steps": 8, "doublings": 1},
    }
    evaluation = {"factors": [1, 2], "examples": 4, "few_examples": 2, "dispersion": [1, 2]}
    piece = Piece(
        experiment="copy",
        run="asentmax",
        seed=1,
        kind="task",
        settings=settings,
        evaluation=evaluation,
        minutes=1,
    )
    return replace(piece, **changes)


@pytest.mark.slow
def test_task_is_trained_scored_and_reported(workshop, tmp_path):
    piece = _piece()
    short = replace(workshop, deadline=time.monotonic() + 4)
    assert run_pieces([piece], short, KINDS) == []  # time is up in the middle of something
    assert run_pieces([piece], workshop, KINDS) == [piece.name]
    log = json.loads(piece.log(workshop.results).read_text())
    assert log["solved_at"] is None and log["steps"] == 16  # not solved: trained twice as long
    assert [x["length"] for x in log["scores"]] == [4, 8]
    assert [x["length"] for x in log["dispersion"]["lengths"]] == [4, 8]
    assert str(tmp_path) not in json.dumps(log)
    (page,) = write_pages(workshop.results, tmp_path / "docs")
    assert "### Copy" in page.read_text()
    assert (tmp_path / "docs" / "long-context" / "copy-dispersion.svg").is_file()


@pytest.mark.slow
def test_language_model_is_trained_and_read(workshop, tmp_path):
    folder = workshop.data / "lm" / "gutenberg_novels"
    folder.mkdir(parents=True)
    text = "It rained. We stayed at home, and read to each other.\nNight fell.\n" * 300
    for split in ("train", "test"):
        (folder / f"{split}.txt.gz").write_bytes(gzip.compress(text.encode()))
    piece = _piece(
        experiment="language",
        kind="language",
        settings={
            **SIZES,
            **{"attention": "asentmax", "vocab_size": 300, "context": 64, "dev_share": 0.1},
            **{"max_steps": 4, "retrieval": {"share": 0.5, "max_facts": 2, "passage": 200}},
        },
        evaluation={"lengths": [64, 128], "tokens": 256, "needles": 1},
    )
    assert run_pieces([piece], workshop, KINDS) == [piece.name]
    log = json.loads(piece.log(workshop.results).read_text())
    assert [x["length"] for x in log["perplexity"]] == [64, 128]
    assert {x["length"] for x in log["needles"]} == {128}  # 64 tokens have no room for one
    (page,) = write_pages(workshop.results, tmp_path / "docs")
    assert "## Language models" in page.read_text()


@pytest.mark.slow
def test_translation_models_are_trained_scored_and_analyzed(workshop, tmp_path, monkeypatch):
    folder = workshop.data / "toy"
    folder.mkdir(parents=True)
    for split, count in (("train", 80), ("dev", 8), ("test", 8)):
        lines = [f"{w} {i} geht nach Haus ?" for i in range(count) for w in ("wer", "das")]
        other = [f"{w} {i} goes home ?" for i in range(count) for w in ("who", "this")]
        (folder / f"{split}.de.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        (folder / f"{split}.en.gz").write_bytes(gzip.compress("\n".join(other).encode()))
    settings = {
        **{"corpus": "toy", "source": "de", "target": "en", "dev": "dev", "vocab_size": 520},
        **{"alpha": 1.5, "encoder_layers": 2, "decoder_layers": 1, "width": 16, "heads": 2},
        **{"ffn": 16, "learning_rate": 1e-3, "warmup_steps": 2, "batch_tokens": 64, "dropout": 0.1},
        **{"max_steps": 4, "log_steps": 2, "eval_steps": 2, "save_steps": 2},
    }
    pieces = [
        _piece(
            experiment="tatoeba",
            run=attention,
            kind="translation",
            settings={**settings, "attention": attention},
            evaluation={"tests": ["test"], "beam": 2},
        )
        for attention in ("softmax", "entmax", "adaptive")
    ]
    last = _piece(
        experiment="heads",
        run="tatoeba",
        kind="heads",
        settings={"experiment": "tatoeba", "sentences": 4},
        evaluation={},
    )
    monkeypatch.setattr("benchmarks.evidence.heads.read_pieces", lambda: pieces)
    monkeypatch.setitem(CORPORA, "toy", "a toy")
    done = run_pieces([last, *pieces], workshop, KINDS)
    assert done == [*(x.name for x in pieces), last.name]
    log = json.loads(pieces[2].log(workshop.results).read_text())
    assert len(log["tests"]["test"]["statistics"]) == 16
    assert log["alpha"][-1]["step"] == 4
    pages = {x.name: x.read_text() for x in write_pages(workshop.results, tmp_path / "docs")}
    assert set(pages) == {"translation.md", "heads.md"}
    assert "## a toy de → en" in pages["translation.md"]
    assert "### Figure 9" in pages["heads.md"]
    assert (tmp_path / "docs" / "heads" / "head_diversity.svg").is_file()


def test_solved_is_the_first_step_of_99_percent():
    log = [
        {"step": 100, "dev_exact_match_16": 0.98, "dev_exact_match_32": 1.0},
        {"step": 200, "loss": 0.1},
        {"step": 200, "dev_exact_match_16": 0.99},
        {"step": 300, "dev_exact_match_16": 1.0},
    ]
    assert solved_at(log, 16) == 200
    assert solved_at(log[:2], 16) is None


def test_log_of_an_interrupted_training_is_read_without_its_repetitions(tmp_path):
    lines = [
        *({"step": i, "loss": 1.0, "time": 60.0 * i} for i in (1, 2, 3)),
        {"step": 3, "dev_loss": 2.0, "time": 181.0},
        *({"step": i, "loss": 0.5, "time": 5000.0 + 60 * i} for i in (3, 4)),
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"step": 5, "lo'
    (tmp_path / "log.jsonl").write_text(text)
    log = read_log(tmp_path)
    assert [(x["step"], x.get("loss")) for x in log if "loss" in x] == [
        *((1, 1.0), (2, 1.0), (3, 0.5), (4, 0.5))
    ]
    assert training_minutes(log) == 4.0  # at the median of a minute each


def test_rounding_keeps_significant_digits():
    assert rounded({"a": [123.456, 0.000123456, 7, None, "x"]}) == {
        "a": [123.5, 0.0001235, 7, None, "x"]
    }
