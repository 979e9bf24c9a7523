import json
import os

import pytest

from adasparse._files import write_atomically
from adasparse.bench import attention, lengths, ops
from adasparse.bench.calls import OURS

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


def lengths_result(result, **changes):
    row = {"name": OURS, "shape": [1, 8, 64, 64], "ms": 1.0, "gib": 1.0}
    return json.dumps(result("lengths", [{**row, **changes}])).encode()


@pytest.mark.parametrize("command", ["table", "plot"])
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[" * 100_000, b"7", {"ms": []}, {"shape": []}],
    ids=lambda x: str(x)[:12],
)
def test_damaged_results_are_told(run, result, tmp_path, command, content):
    """Some used to end in a traceback."""
    path = tmp_path / "x.json"
    damaged = content if isinstance(content, bytes) else lengths_result(result, **content)
    path.write_bytes(damaged)
    found = run(command, path, *(("--output", tmp_path / "x.svg") if command == "plot" else ()))
    assert found.exit_code == 2
    assert "must be JSON written by" in " ".join(found.stderr.replace("│", "").split())
    assert [x.name for x in tmp_path.iterdir()] == ["x.json"]


def test_a_figure_that_cannot_be_drawn_is_told(run, result, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "x.json").write_bytes(lengths_result(result, shape=[1, 8, 10**30, 64]))
    found = run("plot", tmp_path / "x.json", "--output", tmp_path / "x.svg")
    assert found.exit_code == 2
    assert [x.name for x in tmp_path.iterdir()] == ["x.json"]


def test_a_page_that_is_no_text_is_told(run, result, tmp_path):
    (tmp_path / "x.json").write_bytes(lengths_result(result))
    (tmp_path / "page.md").write_bytes(b"\xff")
    found = run("table", tmp_path / "x.json", "--into", tmp_path / "page.md")
    assert found.exit_code == 1
    assert found.stderr.startswith("Error: ")
