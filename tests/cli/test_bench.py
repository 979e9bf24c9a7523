import json
import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from adasparse.cli import bench, comparisons
from adasparse.cli.main import app
from adasparse.cli.timing import best_times

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(comparisons, "SHAPES", ((32, 8), (16, 40)))
    monkeypatch.setattr(comparisons, "PACKAGE_SHAPE", (32, 8))
    monkeypatch.setattr(comparisons, "LOSS_SHAPE", (16, 40))
    monkeypatch.setattr("adasparse.cli.timing.MIN_TURN", 1e-5)


@pytest.fixture(autouse=True)
def thread_settings(monkeypatch):
    # A real setting, even if put back, has torch's exp use threads for small vectors ever after:
    # on a busy machine later tests would crawl.
    settings = []
    monkeypatch.setattr(torch, "set_num_threads", settings.append)
    return settings


def test_json_holds_every_comparison_and_the_machine():
    result = run("ops", "--quick", "--json", "--threads", 1, "--seed", 3)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["command"] == "adasparse bench ops --threads 1 --repeats 3 --seed 3 --quick"
    assert {"cpu", "isa", "torch", "threads", "date", "adasparse"} <= set(found["machine"])
    assert found["machine"]["threads"] == 1
    rows = found["results"]
    assert all(row["ratio"] == pytest.approx(row["baseline_ms"] / row["ms"]) for row in rows)
    softmax = [row for row in rows if row["baseline"] == "torch.softmax"]
    assert {tuple(row["shape"]) for row in softmax} == {(4, 8), (2, 40)}  # an eighth of the rows
    alphas = [row["alpha"] for row in softmax if row["shape"] == [4, 8]]
    assert alphas == [*comparisons.ALPHAS, *comparisons.ALPHAS, "learned"]
    loss = [row["alpha"] for row in rows if row["baseline"] == "cross_entropy"]
    assert loss == [*comparisons.LOSS_ALPHAS, "learned"]


def test_table_goes_to_stdout_and_shows_ratios():
    result = run("ops", "--quick", "--repeats", 1)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("entmax 4×8, forward, against torch.softmax at ")
    assert lines[1].split() == ["α", "1", "1.05", "1.25", "1.5", "1.75", "2"]
    assert lines[3].count("×") == len(comparisons.ALPHAS)
    assert lines[-1].startswith("ops | cpu:")
    assert max(map(len, lines[:-1])) <= 80


def test_threads_are_set_and_put_back(thread_settings):
    result = run("ops", "--quick", "--repeats", 1, "--threads", 3, "--json")
    assert json.loads(result.stdout)["machine"]["threads"] == 3
    assert thread_settings == [3, torch.get_num_threads()]


def test_missing_package_is_noted(monkeypatch):
    monkeypatch.setattr(comparisons, "has_entmax_package", lambda: False)
    result = run("ops", "--quick", "--repeats", 1, "--json")
    found = json.loads(result.stdout)
    assert found["skipped"] == ["entmax.entmax15: not installed"]
    assert "entmax.entmax15" not in {row["baseline"] for row in found["results"]}


def test_output_is_the_json_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "ops.json"
    result = run("ops", "--quick", "--repeats", 1, "--json", "--output", path)
    assert path.read_text() == result.stdout
    assert os.listdir(tmp_path) == ["ops.json"]


def test_output_directory_is_checked_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "_measure", lambda *_: pytest.fail("measured in vain"))
    result = run("ops", "--output", tmp_path / "missing" / "ops.json")
    assert result.exit_code == 2
    assert "must exist" in result.stderr


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "ops.json"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        bench.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["ops.json"]


def result_file(path):
    row = {
        "operator": "entmax",
        "alpha": 1.5,
        "baseline": "torch.softmax",
        "shape": [4, 8],
        "direction": "forward",
        "ms": 2.0,
        "baseline_ms": 3.0,
        "ratio": 1.5,
    }
    machine = {"cpu": "Some CPU", "isa": "avx2", "threads": 2, "torch": "2.13", "adasparse": "1.0"}
    result = {"benchmark": "ops", "command": "adasparse bench ops", "machine": machine, "seed": 0}
    path.write_text(json.dumps({**result, "results": [row, {**row, "alpha": "learned"}]}))
    return path


def test_markdown_has_a_cell_per_alpha_and_a_signature(tmp_path):
    lines = run("table", result_file(tmp_path / "ops.json")).stdout.splitlines()
    assert lines[0].endswith("| α = 1.5 | α = learned |")
    assert lines[2].endswith("| 4×8 | forward | 3.00 | 2.00 (1.50×) | 2.00 (1.50×) |")
    assert lines[-1] == "`ops | cpu:Some-CPU isa:avx2 threads:2 torch:2.13 seed:0 v:1.0`"


def test_table_replaces_what_is_between_the_markers(tmp_path):
    file, page = result_file(tmp_path / "ops.json"), tmp_path / "page.md"
    page.write_text("before\n<!-- ops:begin -->\nold\n<!-- ops:end -->\nafter\n")
    for _ in range(2):  # the second time changes nothing
        assert run("table", file, "--into", page).exit_code == 0
        drawn = run("table", file).stdout
        assert (
            page.read_text(encoding="utf-8")
            == f"before\n<!-- ops:begin -->\n{drawn}<!-- ops:end -->\nafter\n"
        )


def test_table_needs_markers_and_a_result(tmp_path):
    file, page = result_file(tmp_path / "ops.json"), tmp_path / "page.md"
    page.write_text("no markers")
    result = run("table", file, "--into", page)
    assert result.exit_code == 2
    assert "ops:begin" in result.stderr
    for content in ("not JSON", "{}", "[]"):
        file.write_text(content)
        result = run("table", file)
        assert result.exit_code == 2
        assert "adasparse bench" in result.stderr
    assert page.read_text(encoding="utf-8") == "no markers"


def test_readme_shows_the_published_results():
    file = ROOT / "benchmarks" / "results" / "ops.json"
    if not file.exists():
        pytest.skip("no published results in this copy")
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- ops:begin -->\n")[1]
    assert shown.split("<!-- ops:end -->")[0] == bench.markdown(json.loads(file.read_text()))


def test_functions_take_turns_and_the_best_counts(monkeypatch):
    clock = iter([0, 1, 0, 1, 0, 5, 0, 7, 0, 3, 0, 9])  # a turn is the span of a pair
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    calls = []
    rounds = []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = best_times(functions, repeats=2, on_round=lambda: rounds.append(len(calls)))
    assert times == {"a": 3, "b": 7}
    assert "".join(calls) == "aabb" + "abab"
    assert rounds == [6, 8]


def test_short_functions_are_called_several_times_in_a_turn(monkeypatch):
    monkeypatch.setattr("adasparse.cli.timing.MIN_TURN", 10)
    clock = iter([0, 2, 0, 20])  # 2 seconds a call, so a turn of 10 takes 5 of them
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    calls = []
    assert best_times({"a": lambda: calls.append("a")}, repeats=1) == {"a": 4}
    assert len(calls) == 2 + 5
