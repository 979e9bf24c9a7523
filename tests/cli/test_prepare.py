import inspect
import json
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app
from adasparse.cli.prepare import gather_files
from adasparse.cli.prepare import prepare as command
from adasparse.translation.data import PreparedData
from adasparse.translation.filters import Filters
from adasparse.translation.prepare import prepare

WORDS = [("Hund", "dog"), ("Katze", "cat"), ("Haus", "house"), ("Baum", "tree"), ("und", "and")]
PAIRS = [
    (f"{a[0]} {b[0]} {c[0]}.", f"{a[1]} {b[1]} {c[1]}.")
    for a in WORDS
    for b in WORDS
    for c in WORDS
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, pairs in (("train", PAIRS[10:]), ("val", PAIRS[:10])):
        for lang, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{name}.{lang}").write_text("".join(f"{text}\n" for text in side))
    (tmp_path / "more.tsv").write_text("Maus\tmouse\nBär\tbear\n")
    return tmp_path


def run(line):
    return CliRunner().invoke(app, ["prepare", *line.split()])


def test_the_folder_is_written_and_told_about(files):
    result = run("--train train.de train.en --dev val.de val.en --out data/m30k")
    assert result.exit_code == 0
    assert "de → en: 115 training pairs" in result.stdout
    assert "data=data/m30k" in result.stdout
    assert re.search(r"dropped: duplicate +0", result.stderr)
    assert len(PreparedData.open("data/m30k").train) == 115


def test_json_is_the_manifest(files):
    result = run("--out=x --dev=val.de val.en --train=train.de train.en --train more.tsv --json")
    found = json.loads(result.stdout)
    assert found.pop("folder") == "x"
    assert found == PreparedData.open("x").manifest
    assert found["train"]["read"] == 117
    assert len(found["inputs"]["train"]) == 2


def test_options_reach_the_library(files):
    result = run(
        "--train train.de train.en --dev-size 9 --seed 5 --out x --vocab-size 700 --max-chars 0 "
        "--max-tokens 0 --max-ratio 0 --min-tokens 2 --tokenizer-pairs 50 --no-normalize "
        "--no-deduplicate --source-lang deu --target-lang eng --json"
    )
    found = json.loads(result.stdout)
    assert found["settings"] == {
        "vocab_size": 700,
        "tokenizer_pairs": 50,
        "normalize": False,
        "deduplicate": False,
        "max_chars": None,
        "min_tokens": 2,
        "max_tokens": None,
        "max_ratio": None,
        "dev_size": 9,
        "seed": 5,
    }
    assert found["languages"] == {"source": "deu", "target": "eng"}


def test_defaults_are_those_of_the_library():
    options = inspect.signature(command).parameters
    defaults = {
        **{name: each.default for name, each in inspect.signature(prepare).parameters.items()},
        **vars(Filters()),
    }
    for name, option in options.items():
        if name != "as_json":
            assert option.default == defaults[name], name


def test_files_are_gathered():
    line = "--train a b --force --dev=c d --train e.tsv --out f"
    assert gather_files(line.split()) == [
        *("--train", "a\0b", "--force", "--dev=c\0d", "--train", "e.tsv", "--out", "f")
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--train train.de nowhere.en --dev val.de val.en", "There is no file nowhere.en"),
        ("--train train.de val.en --dev val.de val.en", "got 115 and 10"),
        ("--train train.de --dev val.de val.en", "Pairs come from two files"),
        ("--train train.de train.en val.en --dev val.de val.en", "Pairs come from two files"),
        ("--train train.de train.en", "Dev data are needed"),
        ("--train train.de train.en --dev val.de val.en --max-ratio 0.5", "max_ratio must be"),
    ],
)
def test_mistakes_are_told_without_a_traceback(files, line, message):
    result = run(f"{line} --out x")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert not (files / "x").exists()


@pytest.mark.parametrize(
    "line", ["--out x", "--train train.de train.en", "--out x --train --dev a b"]
)
def test_missing_options_are_told(files, line):
    assert run(line).exit_code == 2


def test_force_replaces(files):
    line = "--train train.de train.en --dev val.de val.en --out x"
    assert run(line).exit_code == 0
    again = run(line)
    assert again.exit_code == 1
    assert "use --force" in again.stderr
    assert run(f"{line} --force").exit_code == 0


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(files):
    (files / "big.de").write_text("Hund und Katze\n" * 3_000_000)
    (files / "big.en").write_text("dog and cat\n" * 3_000_000)
    before = set(files.iterdir())
    code = "from adasparse.cli.main import main; main()"
    line = "prepare --train big.de big.en --dev val.de val.en --out new/x"
    process = subprocess.Popen([sys.executable, "-c", code, *line.split()], stderr=subprocess.PIPE)
    while not (files / "new").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert set(files.iterdir()) == before
