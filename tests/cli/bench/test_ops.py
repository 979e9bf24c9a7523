import json

import pytest
import torch

from adasparse.bench import calls, ops_cases


def test_json_holds_every_comparison_and_the_machine(run):
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
    assert alphas == [*ops_cases.ALPHAS, *ops_cases.ALPHAS, "learned"]
    loss = [row["alpha"] for row in rows if row["baseline"] == "cross_entropy"]
    assert loss == [*ops_cases.LOSS_ALPHAS, "learned"]


def test_table_goes_to_stdout_and_shows_ratios(run):
    result = run("ops", "--quick", "--repeats", 1)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("entmax 4×8, forward, against torch.softmax at ")
    assert lines[1].split() == ["α", "1", "1.05", "1.25", "1.5", "1.75", "2"]
    assert lines[3].count("×") == len(ops_cases.ALPHAS)
    assert lines[-1].startswith("ops | cpu:")
    assert max(map(len, lines[:-1])) <= 80


def test_threads_are_set_and_put_back(run, thread_settings):
    result = run("ops", "--quick", "--repeats", 1, "--threads", 3, "--json")
    assert json.loads(result.stdout)["machine"]["threads"] == 3
    assert thread_settings == [3, torch.get_num_threads()]


def test_missing_package_is_noted(run, monkeypatch):
    monkeypatch.setattr(calls, "has_entmax_package", lambda: False)
    result = run("ops", "--quick", "--repeats", 1, "--json")
    found = json.loads(result.stdout)
    assert found["skipped"] == ["entmax.entmax15: not installed"]
    assert "entmax.entmax15" not in {row["baseline"] for row in found["results"]}


def test_threads_that_nobody_has_are_refused(run):
    """So many used to end the process: there was no memory for them."""
    result = run("ops", "--quick", "--threads", 10**9)
    assert result.exit_code == 2
    assert "less than or equal to 1024" in " ".join(result.stderr.replace("│", " ").split())
