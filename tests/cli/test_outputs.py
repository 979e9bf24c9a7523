"""Outputs that cannot be written, closed streams and lost folders: told at once, nothing lost."""

import os
import stat
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load

from adasparse import _command
from support.commands import fails, invoke, snapshot
from support.small_disk import largest_file
from support.small_language import language_file, text_file
from support.small_runs import recipe_file, small_data, small_run
from support.small_tasks import task_file, task_run


@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_a_closed_stream_is_told(monkeypatch, name):
    """It used to end in a traceback; Python has None for streams that are closed at the start."""
    from adasparse.cli import translate as command

    streams = {"stdin": sys.stdin, "stdout": sys.stdout, name: None}
    monkeypatch.setattr(command, "sys", SimpleNamespace(**streams))
    wanted = {"stdin": "input", "stdout": "output"}[name]
    assert f"Standard {wanted} is closed; name" in fails("translate", small_run())


class TestOutputOfTranslate:
    def test_a_bad_target_is_told_before_the_first_sentence(self, tmp_path, monkeypatch):
        """It used to be found in the end, and all translations were lost."""

        def never(*args, **kwargs):
            raise AssertionError("a model was loaded")

        monkeypatch.setattr("adasparse.translation.runs.load_run", never)
        missing = tmp_path / "no/where.txt"
        for option in ("-o", "--attention"):
            assert f"there is no {missing.parent}" in fails(
                "translate", small_run(), option, missing, text="zwei\n"
            )
        assert "is a folder" in fails("translate", small_run(), "-o", tmp_path, text="zwei\n")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_protected_folder_is_told(self, tmp_path):
        tmp_path.chmod(0o500)
        assert "write-protected" in fails("translate", small_run(), "-o", tmp_path / "x", text="")

    def test_it_goes_through_pipes(self, tmp_path):
        """A pipe used to be replaced by a file."""
        pipe, read = tmp_path / "pipe", []
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
        reader.start()
        assert invoke("translate", small_run(), "-o", pipe, text="zwei\n\n").exit_code == 0
        reader.join(20)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert read[0] == invoke("translate", small_run(), text="zwei\n\n").stdout
        assert [x.name for x in tmp_path.iterdir()] == ["pipe"]

    def test_it_follows_links(self, tmp_path):
        """A link used to be replaced by a file."""
        (tmp_path / "deep").mkdir()
        link, target = tmp_path / "link", tmp_path / "deep/target"
        link.symlink_to(target)
        for before in (None, "old\n"):
            if before is not None:
                target.write_text(before)
            assert invoke("translate", small_run(), "-o", link, text="zwei\n").exit_code == 0
            assert link.is_symlink()
            assert target.read_text() == invoke("translate", small_run(), text="zwei\n").stdout

    def test_attention_goes_through_pipes(self, tmp_path):
        """A pipe used to be replaced by a file, and so did /dev/null by root."""
        pipe, file, read = tmp_path / "pipe", tmp_path / "file", []
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
        reader.start()
        for target in (pipe, file):
            result = invoke("translate", small_run(), "--attention", target, text="zwei\n")
            assert result.exit_code == 0, result.output
        reader.join(20)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        piped, written = load(read[0]), load(file.read_bytes())
        assert piped.keys() == written.keys()
        assert all(np.array_equal(x, written[name]) for name, x in piped.items())


#: Commands with a folder to write, by the folder.
FOLDERS = {
    "prepare": lambda out: ("prepare", "--train", "a.de", "a.en", "--dev-size", 2, "--out", out),
    "train": lambda out: ("train", recipe_file(), f"data={small_data()}", f"output={out}"),
    "analyze": lambda out: ("analyze", small_run(), "--data", small_data(), "--out", out),
    "tasks heads": lambda out: ("tasks", "heads", task_run(), "--lengths", 5, "--out", out),
    "tasks sweep": lambda out: ("tasks", "sweep", task_file(), "--lengths", 5, "--out", out),
    "demo": lambda out: ("demo", "--steps", 1, "--out", out),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_below_a_file_is_told(tmp_path, name):
    """It used to be an Errno, in some commands after all of the work."""
    (tmp_path / "a.txt").write_text("text")
    before = snapshot(tmp_path)
    message = fails(*FOLDERS[name](tmp_path / "a.txt/b/c"))
    assert f"cannot be made, since {tmp_path / 'a.txt'} is a file." in message
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", [x for x in FOLDERS if x != "tasks sweep"])
def test_a_folder_whose_name_is_no_text_is_told(tmp_path, name):
    """Libraries used to fail on it in the end."""
    message = fails(*FOLDERS[name](tmp_path / "gr\udcfcn"))
    assert "The name of the output must be Unicode; got" in message
    assert not [*tmp_path.iterdir()]


def test_a_name_that_is_too_long_is_told_in_part(tmp_path):
    """All of its letters used to be printed, after the number of the error."""
    message = fails(*FOLDERS["train"](tmp_path / ("n" * 3000)))
    assert "n cannot be used: File name too long." in message
    assert len(message) < 400


@pytest.mark.parametrize("below", ["a.txt/b.json", "no/b.json"])
def test_benchmarks_are_not_run_for_a_file_that_cannot_be_written(tmp_path, monkeypatch, below):
    """Below a file, they used to measure first."""
    monkeypatch.setattr("adasparse.cli.bench.ops.run_benchmark", lambda *_, **__: 1 / 0)
    (tmp_path / "a.txt").write_text("text")
    result = invoke("bench", "ops", "--quick", "--output", tmp_path / below)
    assert result.exit_code == 2
    assert "must exist; there is no" in " ".join(result.stderr.replace("│", " ").split())


def test_score_tells_of_a_closed_standard_input(monkeypatch):
    """It used to end in a traceback."""
    from adasparse.cli import score as score_command

    monkeypatch.setattr(score_command, "sys", SimpleNamespace(stdin=None))
    message = fails("score", "--hyp", "-", "--ref", recipe_file())
    assert "Standard input is closed; name a file instead of -." in message


def test_a_closed_standard_error_does_not_matter(monkeypatch):
    """Every command used to end before it began."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "stderr", None)
    _command._start(["score"])
    with sys.stderr as nowhere:
        assert nowhere.name == os.devnull


def test_a_working_directory_that_was_removed_is_told(tmp_path, monkeypatch):
    """It used to be an error of the libraries of torch, which end the process."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit, match="The working directory was removed; change to another"):
        _command._start(["score"])


def test_a_disk_that_takes_no_tokenizer_is_told(tmp_path, monkeypatch):
    """It used to end in a traceback of tokenizers."""
    from transformers import PreTrainedTokenizerFast

    true = PreTrainedTokenizerFast.save_pretrained

    def limited(*args, **kwargs):
        with largest_file(1000):
            return true(*args, **kwargs)

    monkeypatch.setattr(PreTrainedTokenizerFast, "save_pretrained", limited)
    for side in ("de", "en"):
        (tmp_path / f"a.{side}").write_text("eins zwei\ndrei vier\nsechs\n")
    texts = sorted(tmp_path.iterdir())
    message = fails("prepare", "--train", *texts, "--dev-size", 1, "--out", tmp_path / "data")
    assert f"{tmp_path / 'data'} cannot be used: File too large." in message
    assert sorted(tmp_path.iterdir()) == texts


def test_a_disk_that_takes_no_tokens_is_told(tmp_path, monkeypatch):
    """It used to be "2484 requested and 468 written"."""
    true = np.save

    def limited(*args, **kwargs):
        with largest_file(600):
            return true(*args, **kwargs)

    monkeypatch.setattr("adasparse.longcontext.text.np.save", limited)
    where = (f"data={text_file()}", f"output={tmp_path / 'run'}")
    message = fails("lm", "train", language_file(), *where)
    assert f"{tmp_path / 'run/tokens'} cannot be used: No space left on device." in message
    assert not (tmp_path / "run").exists()
