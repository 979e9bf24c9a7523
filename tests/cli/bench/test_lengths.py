import json
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from adasparse.bench import calls, memory, tables
from adasparse.bench.calls import OURS, PACKAGE, SOFTMAX


def measure(run, *options):
    result = run("lengths", "--repeats", 1, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_every_function_is_measured_as_far_as_it_goes(run, weighed):
    found = measure(run)
    of = {(row["name"], row["shape"][2]): row for row in found["results"]}
    for name in (OURS, SOFTMAX):
        for length in (16, 32, 64):
            assert of[name, length]["ms"] > 0
            assert of[name, length]["gib"] == length / 1024
    assert of[PACKAGE, 16]["ms"] > 0
    assert of[PACKAGE, 32]["ms"] is None
    assert of[PACKAGE, 32]["gib"] == 32 / 1024
    assert (PACKAGE, 64) not in of
    assert len(weighed) == 3 + 3 + 2


def test_quick_takes_every_other_length_at_an_eighth(run):
    assert {row["shape"][2] for row in measure(run, "--quick")["results"]} == {2, 8}


def test_what_is_missing_is_noted(run, monkeypatch):
    monkeypatch.setattr(calls, "has_entmax_package", lambda: False)
    monkeypatch.setattr(memory, "is_available", lambda: False)
    found = measure(run)
    assert found["skipped"] == [calls.PACKAGE_MISSING, memory.UNAVAILABLE]
    assert {row["name"] for row in found["results"]} == {OURS, SOFTMAX}
    assert {row["gib"] for row in found["results"]} == {None}


def test_process_that_takes_too_much_memory_is_left_out(run, monkeypatch):
    def peak(name, shape, **_):
        if name == PACKAGE:
            raise BrokenProcessPool
        return 1.0

    monkeypatch.setattr(memory, "peak_extra_gib", peak)
    found = measure(run)["results"]
    assert [row["gib"] for row in found if row["name"] == PACKAGE] == [None]
    assert {row["gib"] for row in found if row["name"] != PACKAGE} == {1.0}


def test_table_has_a_line_per_length(run):
    lines = run("lengths", "--repeats", 1).stdout.splitlines()
    shown = [line.split() for line in lines if line.strip().startswith(("16", "32", "64"))]
    assert [len(cells) for cells in shown] == [7, 6, 5]
    assert max(map(len, lines[:-1])) <= 80


def test_markdown_leaves_blank_what_was_not_measured(result):
    rows = [
        {"name": OURS, "shape": [1, 8, 4096, 64], "ms": 2.0, "gib": 0.5},
        {"name": PACKAGE, "shape": [1, 8, 4096, 64], "ms": None, "gib": 2.0},
    ]
    lines = tables.markdown(result("lengths", rows)).splitlines()
    assert lines[2] == "| 4096 | 2.0 |  | 512.0 | 2048.0 |"


def test_published_figures_are_there_with_their_numbers():
    folder = Path(__file__).parents[3] / "benchmarks" / "results"
    if not (folder / "lengths.json").exists():
        pytest.skip("no published results in this copy")
    for name in ("attention_time.svg", "attention_memory.svg"):
        assert (folder / name).stat().st_size < 300_000
