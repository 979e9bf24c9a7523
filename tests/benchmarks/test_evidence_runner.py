import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.evidence.declared import read_experiments, read_pieces
from benchmarks.evidence.kinds import KINDS
from benchmarks.evidence.plan import plan_table
from benchmarks.evidence.runner import (
    FAILED,
    compact_json,
    lock,
    run_pieces,
    states,
)
from benchmarks.evidence.workshop import ROOT, NotReadyError, OutOfTimeError, Workshop

DECLARED = """
.shared: &shared {width: 8}
count:
  kind: count
  minutes: 30
  seeds: [1, 2]
  settings: {<<: *shared, steps: 3}
  evaluation: {examples: 5}
  runs:
    plain: {}
    long: {steps: 6, seeds: [1], minutes: 60}
"""


@pytest.fixture
def declared(tmp_path):
    path = tmp_path / "experiments.yaml"
    path.write_text(DECLARED)
    return path


@pytest.fixture
def workshop(tmp_path):
    return Workshop(work=tmp_path / "work", data=tmp_path, results=tmp_path / "results")


@pytest.fixture(autouse=True)
def _known_machine(monkeypatch):
    monkeypatch.setattr(Workshop, "machine", lambda self: {"cpu": "test"})


def _count(piece, workshop):
    """Count to the declared number, a file for each step, never a step twice."""
    folder = piece.folder(workshop.work)
    for step in range(piece.settings["steps"]):
        if not (folder / f"step-{step}").is_file():
            (folder / f"step-{step}").write_text("")
    return {"counted": len(list(folder.glob("step-*")))}


def _silent(line):
    pass


def test_declaration_is_read(declared):
    pieces = read_pieces(declared)
    assert [x.name for x in pieces] == ["count/plain/1", "count/long/1", "count/plain/2"]
    plain, long, _ = pieces
    assert plain.settings == {"width": 8, "steps": 3} and long.settings["steps"] == 6
    assert (plain.minutes, long.minutes) == (30, 60)
    assert len({x.key for x in pieces}) == 3


def test_unknown_keys_are_refused(declared):
    declared.write_text(DECLARED + "  epochs: 3\n")
    with pytest.raises(ValueError, match=r"count also has \['epochs'\]"):
        read_experiments(declared)


def test_published_experiments_are_of_known_kinds_and_names_are_unique():
    pieces = read_pieces()
    assert {x.kind for x in pieces} <= set(KINDS)
    assert len({x.name for x in pieces}) == len(pieces)


def test_every_log_is_declared():
    results = ROOT / "benchmarks" / "results" / "evidence"
    known = {piece.log(results) for piece in read_pieces()}
    assert set(results.glob("*/*.json")) <= known


def test_pieces_are_done_once_and_logged(declared, workshop):
    pieces = read_pieces(declared)
    done = run_pieces(pieces, workshop, {"count": _count}, report=_silent)
    assert done == ["count/plain/1", "count/long/1", "count/plain/2"]
    log = json.loads((workshop.results / "count" / "long-1.json").read_text())
    assert log["counted"] == 6 and log["settings"] == {"width": 8, "steps": 6}
    assert log["machine"] == {"cpu": "test"}
    assert {x.state for x in states(pieces, workshop)} == {"done"}
    assert run_pieces(pieces, workshop, {"count": _count}, report=_silent) == []


def test_other_settings_are_another_piece(declared, workshop):
    run_pieces(read_pieces(declared), workshop, {"count": _count}, report=_silent)
    declared.write_text(DECLARED.replace("steps: 3", "steps: 4"))
    pieces = read_pieces(declared)
    assert [x.state for x in states(pieces, workshop)] == ["missing", "done", "missing"]
    # Another evaluation needs no other training: the folder stays.
    declared.write_text(DECLARED.replace("examples: 5", "examples: 6"))
    assert [x.state for x in states(read_pieces(declared), workshop)] == ["begun"] * 3


def test_time_that_is_up_leaves_a_piece_begun_and_first_in_line(declared, workshop, monkeypatch):
    pieces, clock = read_pieces(declared), SimpleNamespace(now=0.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now, strftime=time.strftime)
    monkeypatch.setattr("benchmarks.evidence.runner.time", fake)

    def stopped(piece, workshop):
        clock.now = 2.0
        raise OutOfTimeError

    short = replace(workshop, deadline=1.0)
    assert run_pieces(pieces[2:], short, {"count": stopped}, report=_silent) == []
    assert [x.state for x in states(pieces, workshop)] == ["missing", "missing", "begun"]
    done = run_pieces(pieces, workshop, {"count": _count}, report=_silent)
    assert done[0] == "count/plain/2"


def test_failure_is_marked_and_passed_over(declared, workshop):
    pieces = read_pieces(declared)

    def broken(piece, workshop):
        if piece.run == "long":
            raise RuntimeError("diverged")
        return _count(piece, workshop)

    messages = []
    done = run_pieces(pieces, workshop, {"count": broken}, report=messages.append)
    assert done == ["count/plain/1", "count/plain/2"]
    assert [x.state for x in states(pieces, workshop)] == ["done", "failed", "done"]
    assert any("diverged" in x and FAILED in x for x in messages)
    (pieces[1].folder(workshop.work) / FAILED).unlink()
    assert run_pieces(pieces, workshop, {"count": _count}, report=_silent) == ["count/long/1"]


def test_piece_that_needs_others_waits_for_them(declared, workshop):
    pieces = read_pieces(declared)

    def needs_the_long_one(piece, workshop):
        if piece.seed == 1 and piece.run == "plain" and not pieces[1].is_done(workshop.results):
            raise NotReadyError("count/plain/1 needs count/long/1.")
        return _count(piece, workshop)

    messages = []
    kinds = {"count": needs_the_long_one}
    done = run_pieces(pieces, workshop, kinds, report=messages.append)
    assert done == ["count/long/1", "count/plain/1", "count/plain/2"]
    assert "count/plain/1 needs count/long/1." in messages
    pieces[1].log(workshop.results).unlink()
    pieces[0].log(workshop.results).unlink()
    assert run_pieces(pieces[:1], workshop, kinds, report=_silent) == []  # and it ends


def test_piece_of_another_runner_is_passed_over(declared, workshop):
    pieces = read_pieces(declared)
    with lock(pieces[0], workshop) as held:
        assert held is not None
        pieces[0].folder(workshop.work).mkdir(parents=True)
        assert states(pieces, workshop)[0].state == "running"
        done = run_pieces(pieces, workshop, {"count": _count}, report=_silent)
    assert done == ["count/long/1", "count/plain/2"]


RUNNER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from benchmarks.evidence.declared import read_pieces
from benchmarks.evidence.runner import run_pieces
from benchmarks.evidence.workshop import Workshop
Workshop.machine = lambda self: {{}}
folder = Path({folder!r})

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.01)

def slow(piece, workshop):
    own = piece.folder(workshop.work)
    if {waits_for!r}:
        (folder / f"{{sys.argv[1]}}-has-a-piece").touch()
        wait_for({waits_for!r})
    for step in range(piece.settings["steps"]):
        path = own / f"step-{{step}}"
        if not path.is_file():
            if step == {last_step}:
                time.sleep(60)
            path.with_suffix(".new").write_text(sys.argv[1])
            path.with_suffix(".new").rename(path)
    return {{"by": [(own / f"step-{{i}}").read_text() for i in range(piece.settings["steps"])]}}

workshop = Workshop(work=folder / "work", data=folder, results=folder / "results")
run_pieces(read_pieces(folder / "experiments.yaml"), workshop, {{"count": slow}})
"""


def _script(folder: Path, *, waits_for: str = "", last_step: int = -1) -> str:
    """Code that does all pieces: each waits for a file, and stays at a step if one is given."""
    options = {"waits_for": waits_for, "last_step": last_step}
    return RUNNER.format(root=str(ROOT), folder=str(folder), **options)


def _start(folder: Path, name: str, **options: str | int) -> "subprocess.Popen[bytes]":
    script = _script(folder, **options)
    return subprocess.Popen([sys.executable, "-c", script, name], stderr=subprocess.DEVNULL)


def test_killed_runner_is_resumed_by_the_next(declared, tmp_path):
    first = _start(tmp_path, "first", last_step=2)
    _wait_for(read_pieces(declared)[0].folder(tmp_path / "work") / "step-1")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not list(tmp_path.glob("results/*/*.json"))
    assert _start(tmp_path, "second").wait(60) == 0
    log = json.loads((tmp_path / "results" / "count" / "plain-1.json").read_text())
    assert log["by"][:2] == ["first", "first"] and log["by"][-1] == "second"
    assert len(list(tmp_path.glob("results/*/*.json"))) == 3


CHILD = """
import pathlib, signal, sys, time
def save(*_):
    while not pathlib.Path(sys.argv[1], "may-end").exists():  # a checkpoint takes its time
        time.sleep(0.01)
    pathlib.Path(sys.argv[1], "saved").write_text("")
    sys.exit()
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1], "started").write_text("")
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the children")
def test_command_of_a_killed_runner_saves_and_holds_its_piece_meanwhile(declared, workshop):
    script = _script(workshop.data).replace(
        "def slow(piece, workshop):",
        "def slow(piece, workshop):\n"
        "    own = piece.folder(workshop.work)\n"
        f"    workshop.run([sys.executable, '-c', {CHILD!r}, own], log=own / 'log')\n"
        "def unused(piece, workshop):",
    )
    runner = subprocess.Popen([sys.executable, "-c", script, "x"], stderr=subprocess.DEVNULL)
    piece = read_pieces(declared)[0]
    folder = piece.folder(workshop.work)
    _wait_for(folder / "started")
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    assert states([piece], workshop)[0].state == "running"
    (folder / "may-end").touch()
    _wait_for(folder / "saved")
    deadline = time.monotonic() + 30
    while states([piece], workshop)[0].state != "begun":
        assert time.monotonic() < deadline


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_runners_take_different_pieces(declared, tmp_path):
    others = {"one": "two", "two": "one"}
    runners = [_start(tmp_path, x, waits_for=f"{y}-has-a-piece") for x, y in others.items()]
    assert [x.wait(60) for x in runners] == [0, 0]
    logs = [json.loads(x.read_text()) for x in tmp_path.glob("results/*/*.json")]
    assert len(logs) == 3
    assert all(len(set(log["by"])) == 1 for log in logs)
    assert {log["by"][0] for log in logs} == {"one", "two"}


def test_command_is_stopped_at_the_deadline(workshop, tmp_path, monkeypatch):
    script = (
        "import signal, sys, time, pathlib\n"
        "def save(*_): pathlib.Path(sys.argv[1]).write_text('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "pathlib.Path(sys.argv[2]).touch()\n"
        "time.sleep(60)\n"
    )
    readings = []

    def monotonic():
        readings.append(None)
        if len(readings) > 1:  # the command was started: a busy machine may take seconds
            _wait_for(tmp_path / "ready")
        return float(len(readings))

    clock = SimpleNamespace(monotonic=monotonic)
    monkeypatch.setattr("benchmarks.evidence.workshop.time", clock)
    short = replace(workshop, deadline=2.0)
    command = [sys.executable, "-c", script, tmp_path / "saved", tmp_path / "ready"]
    with pytest.raises(OutOfTimeError):
        short.run(command, log=tmp_path / "log")
    assert (tmp_path / "saved").read_text() == "saved"


def test_command_that_fails_tells_how_its_messages_end(workshop, tmp_path):
    command = [sys.executable, "-c", "import sys; print('loss is nan', file=sys.stderr); exit(3)"]
    with pytest.raises(RuntimeError, match=r"exit code 3; .*log ends with:\n.*\nloss is nan"):
        workshop.run(command, log=tmp_path / "log")


@pytest.mark.parametrize("multiplies", [True, False])
def test_bfloat16_is_left_out_where_it_is_emulated(multiplies, workshop, monkeypatch):
    flags = f"flags : avx512f {'avx512_bf16 ' if multiplies else ''}avx512_vnni"
    monkeypatch.setattr(Path, "read_text", lambda self: f"model name : A\n{flags}\n")
    monkeypatch.setattr(Path, "is_file", lambda self: True)
    assert workshop.settings({"bf16": True, "layers": 2}) == {"bf16": multiplies, "layers": 2}
    assert workshop.settings({"bf16": False}) == {"bf16": False}


def test_plan_counts_hours_that_are_left(declared, workshop):
    pieces = read_pieces(declared)
    assert {x.state for x in states(pieces, workshop)} == {"missing"}
    assert not workshop.work.exists()  # to look changes nothing
    run_pieces(pieces[:1], workshop, {"count": _count}, report=_silent)
    table = plan_table(states(pieces, workshop)).splitlines()
    assert table[0].split() == [
        *("experiment", "done", "running", "begun", "missing", "failed", "hours")
    ]
    assert table[1].split() == ["count", "1", "0", "0", "2", "0", "1.5"]
    assert "missing     60 min  count/long/1" in plan_table(states(pieces, workshop), each=True)


def test_compact_json_is_json():
    value = {"a": [1, 2.5, None], "b": {"c": ["x" * 60, "y" * 60], "d": list(range(200))}, "é": "α"}
    text = compact_json(value)
    assert json.loads(text) == value and text.endswith("}\n")
    assert "é" in text and len(text.splitlines()) > 3
