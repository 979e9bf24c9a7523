"""Trainings as users start and end them: commands, signals, several processes, a full disk."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from adasparse.training import checkpoints, read_log
from adasparse.translation.train import train
from support.small_runs import (
    assert_same_run,
    log_of,
    recipe_file,
    results_of,
    run,
    small_data,
    small_recipe,
    small_run,
    train_command,
)

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(arguments):
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
        start_new_session=True,
    )  # fmt: skip


def wait_for(process, condition):
    """Wait until something has happened while a process runs."""
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end or process.poll() is not None:
            process.kill()
            raise AssertionError(f"it did not happen: {process.communicate()}")
        time.sleep(0.01)


def has_logged(output, step):
    return any(line["step"] >= step for line in read_log(output / "log.jsonl"))


def first_words(text):
    return [line.split("  ")[0] for line in text.splitlines()]


def test_a_killed_training_goes_on_by_the_command(tmp_path):
    """SIGKILL at any moment, then the same command with --resume."""
    output, changes = tmp_path / "run", ["max_steps=30", "log_steps=1"]
    process = start(train_command(output, *changes))
    wait_for(process, lambda: has_logged(output, random.Random().randint(1, 10)))
    time.sleep(random.Random().random() / 5)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (output / "results.json").exists()
    done = run(train_command(output, *changes, "--resume"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("BLEU ")
    first, *lines = first_words(done.stderr)
    assert first.startswith(("Resuming after step ", "There is no checkpoint yet"))
    assert [x for x in lines if not x.startswith("step ")] == []  # no warnings, no other bars
    assert_same_run(output, train(small_recipe(tmp_path / "whole", max_steps=30, log_steps=1)))


@pytest.mark.parametrize(
    ("number", "changes"),
    [(signal.SIGINT, ["workers=1"]), pytest.param(signal.SIGTERM, [], marks=pytest.mark.slow)],
    ids=str,
)
def test_a_signal_makes_a_checkpoint_and_says_how_to_go_on(tmp_path, number, changes):
    output, changes = tmp_path / "run", ["max_steps=300", "log_steps=1", "save_steps=300", *changes]
    process = start(train_command(output, *changes))
    wait_for(process, lambda: has_logged(output, 3))
    os.killpg(process.pid, number)  # as a terminal does: to all processes
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out == ""
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("Stopped after step ")
    assert last.endswith("as asked. Add --resume to the same command to continue.")
    step = int(last.split()[3].rstrip(","))
    assert [x.name for x in checkpoints(output / "checkpoints")][-1] == f"checkpoint-{step}"
    messages, settings = [], {"max_steps": step + 5, "log_steps": 1, "save_steps": 300}
    train(small_recipe(output, **settings), resume=True, report=messages.append)
    assert messages == [f"Resuming after step {step}."]
    assert_same_run(output, train(small_recipe(tmp_path / "whole", **settings)))


@pytest.mark.slow
def test_the_user_sees_progress_and_nothing_else(tmp_path):
    """No warnings, no bars of other libraries, no line twice."""
    done = run(train_command(tmp_path / "run", "save_steps=5"))
    assert done.returncode == 0
    assert first_words(done.stderr) == [f"step {i}/12" for i in (3, 6, 6, 9, 12, 12)], done.stderr
    assert done.stdout.startswith("BLEU ")
    assert "attn:adaptive seed:3\nNext: adasparse translate " in done.stdout


@pytest.mark.slow
def test_nor_when_training_goes_on(tmp_path):
    train(small_recipe(tmp_path / "run"))
    done = run(train_command(tmp_path / "run", "save_steps=3", "--resume", "--json"))
    messages = ["Resuming after step 12.", "This training has ended already."]
    assert done.stderr.splitlines() == messages
    results = results_of(tmp_path / "run")
    assert json.loads(done.stdout) == {"output": str(tmp_path / "run"), **results}
    done = run(train_command(tmp_path / "run", "max_steps=13", "save_steps=3", "--resume"))
    assert first_words(done.stderr) == ["Resuming after step 12.", "step 13/13"]


def torchrun(*arguments):
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            "--master-port", str(random.Random().randint(20000, 60000)), *arguments]  # fmt: skip


def assert_same_curve(output, expected):
    ours, theirs = log_of(output), log_of(expected)
    assert [x["step"] for x in ours] == [x["step"] for x in theirs]
    for one, two in zip(ours, theirs, strict=True):
        for key in ("loss", "grad_norm", "dev_loss"):
            assert abs(one.get(key, 0) - two.get(key, 0)) < 1e-3, (key, one, two)


@pytest.mark.slow
def test_two_processes_are_one_with_twice_the_batches(tmp_path):
    """The same curve, dropout included; and stopped and resumed it stays that."""
    arguments = train_command(tmp_path / "two", "max_steps=30")[1:]
    process = start(torchrun(*arguments))
    wait_for(process, lambda: has_logged(tmp_path / "two", 12))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode != 0
    assert out == ""
    assert err.count("Add --resume to the same command to continue.") == 1, err
    done = run(torchrun(*arguments, "--resume"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("BLEU") == 1
    train(small_recipe(tmp_path / "one", max_steps=30, accumulate=2))
    assert_same_curve(tmp_path / "two", tmp_path / "one")
    other = run(train_command(tmp_path / "two", "max_steps=31", "--resume"))
    assert other.returncode == 1
    assert "accumulate times processes was 2, now 1" in other.stderr
    done = run(train_command(tmp_path / "two", "max_steps=32", "accumulate=2", "--resume"))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_mistakes_are_told_once_by_two_processes(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("")
    done = run(torchrun(*train_command(tmp_path / "run")[1:]))
    assert done.returncode != 0
    assert done.stderr.count("Error: output must be a new or empty folder") == 1


@pytest.mark.slow
def test_accelerate_starts_a_training_as_well(tmp_path):
    """One process: on CPUs it starts several by mpirun alone."""
    command = [
        sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu",
        "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no",
        "--dynamo_backend", "no", *train_command(tmp_path / "run")[1:],
    ]  # fmt: skip
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert_same_run(tmp_path / "run", small_run())


MOUNT = "mount -t tmpfs -o size={size}k tmpfs {folder} && cd / && "


def can_mount(folder):
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "sh", "-c", MOUNT.format(size=9, folder=folder) + "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 350, 700])
def test_a_disk_that_is_full_ends_training_with_a_reason(tmp_path, size):
    """A real one: a few hundred kilobytes, then with room enough."""
    disk, big = tmp_path / "disk", tmp_path / "big"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("only who may mount a small disk can fill it")
    small_data(), recipe_file()
    command = " ".join(train_command(disk / "run"))
    script = MOUNT.format(size=size, folder=disk) + f"{command}; echo $?; cp -r {disk} {big}"
    done = run(["unshare", "-rm", "sh", "-c", script])
    assert done.stdout.splitlines() == ["1"], done
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(big.rglob("*.partial"))
    shutil.move(big / "run", tmp_path / "run")
    resumed = run(train_command(tmp_path / "run", "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert "damaged" not in resumed.stderr
    assert_same_run(tmp_path / "run", small_run())
