import os
import pty
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_version_is_the_installed_one():
    assert run("--version").stdout == f"adasparse {version('adasparse')}\n"


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["analyze"],
        ["demo"],
        ["doctor"],
        ["explore"],
        ["lm"],
        ["lm", "train"],
        ["lm", "eval"],
        ["lm", "generate"],
        ["prepare"],
        ["score"],
        ["tasks"],
        ["tasks", "train"],
        ["tasks", "eval"],
        ["tasks", "sweep"],
        ["tasks", "plot"],
        ["train"],
        ["translate"],
        ["bench"],
        ["bench", "ops"],
        ["bench", "attention"],
        ["bench", "lengths"],
        ["bench", "table"],
        ["bench", "plot"],
    ],
    ids=str,
)
def test_help_ends_with_a_line_to_paste(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    last = result.stdout.strip().splitlines()[-1].strip()
    assert last.startswith("Example: adasparse " + " ".join(command))


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["dance"], "dance"),
        (["doctor", "--loud"], "--loud"),
        (["bench", "ops", "--threads", "0"], "--threads"),
        (["bench", "ops", "--repeats", "0"], "--repeats"),
        (["bench", "ops", "--seed", "many"], "--seed"),
        (["bench", "attention", "--threads", "0"], "--threads"),
        (["bench", "attention", "--case", "dance"], "dance"),
        (["bench", "lengths", "--seed", "-1"], "--seed"),
        (["bench", "table", "no-such-file.json"], "no-such-file.json"),
        (["bench", "plot", "no-such-file.json", "--output", "x.svg"], "no-such-file.json"),
    ],
    ids=str,
)
def test_mistakes_are_named_without_a_traceback(command, complaint):
    result = run(*command)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_ctrl_c_while_imports_run_is_quiet(tmp_path):
    """It used to end in a traceback out of the middle of PyTorch."""
    slow = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "torch.py").write_text(slow)
    process = subprocess.Popen(
        [sys.executable, "-m", "adasparse", "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        # Tests that run in the background inherit that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert err == "Interrupted.\n"
    assert process.returncode == -signal.SIGINT


def start(tmp_path, arguments, *, on_a_terminal):
    """Return what the command writes to stderr before it has imported anything large."""
    (tmp_path / "torch.py").write_text("raise SystemExit(7)\n")
    ours, theirs = pty.openpty() if on_a_terminal else os.pipe()
    process = subprocess.run(
        [sys.executable, "-m", "adasparse", *arguments],
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    assert process.returncode == 7
    os.write(theirs, b"end\n")
    os.close(theirs)
    text = os.read(ours, 1000).decode().replace("\r", "")
    os.close(ours)
    return text.removesuffix("end\n")


@pytest.mark.parametrize(
    ("arguments", "on_a_terminal", "speaks"),
    [
        (["explore", "run"], False, True),  # five seconds passed before its first word
        (["translate", "run"], True, True),
        (["translate", "run"], False, False),
        (["analyze", "--help"], True, False),
        (["doctor"], True, False),
    ],
    ids=str,
)
def test_slow_commands_speak_before_their_imports(tmp_path, arguments, on_a_terminal, speaks):
    text = start(tmp_path, arguments, on_a_terminal=on_a_terminal)
    assert text == ("Loading libraries …\n" if speaks else "")
