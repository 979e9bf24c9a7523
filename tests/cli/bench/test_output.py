import os

import pytest

from adasparse._files import write_atomically
from adasparse.bench import attention, lengths, ops

BENCHMARKS = {"ops": ops, "attention": attention, "lengths": lengths}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_output_is_the_json_and_nothing_else_is_left(run, tmp_path, name):
    path = tmp_path / "result.json"
    result = run(name, "--quick", "--repeats", 1, "--json", "--output", path)
    assert result.exit_code == 0, result.stderr
    assert path.read_text(encoding="utf-8") == result.stdout
    assert os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_output_directory_is_checked_before_measuring(run, tmp_path, monkeypatch, name):
    monkeypatch.setattr(BENCHMARKS[name], "measure", lambda *_: pytest.fail("measured in vain"))
    result = run(name, "--output", tmp_path / "missing" / "result.json")
    assert result.exit_code == 2
    assert "must exist" in result.stderr


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "ops.json"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["ops.json"]
