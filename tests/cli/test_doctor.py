import json

import pytest
import torch
from typer.testing import CliRunner

import adasparse
from adasparse import diagnostics
from adasparse.cli.main import app
from adasparse.kernels import cpu


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_json_has_every_section():
    result = run("--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert set(report) == {
        "versions",
        "cpu",
        "kernels",
        "backends",
        "accelerators",
        "threads",
        "extras",
        "self_check",
    }
    assert report["versions"]["torch"] == torch.__version__
    assert report["threads"] == torch.get_num_threads()
    assert report["kernels"]["available"] == cpu.is_available()
    assert report["self_check"]["ok"]
    assert 0 < report["self_check"]["weight_error"] <= diagnostics.WEIGHT_TOLERANCE


def test_text_names_backend_and_verdict():
    result = run()
    assert result.exit_code == 0
    assert diagnostics.backends()["cpu"]["backend"] in result.stdout
    assert "fine" in result.stdout


@pytest.mark.parametrize("wrong", [1.001, float("nan")])
def test_wrong_results_exit_with_1(monkeypatch, wrong):
    right = adasparse.entmax
    monkeypatch.setattr(adasparse, "entmax", lambda *args: right(*args) * wrong)
    result = run()
    assert result.exit_code == 1
    assert "WRONG RESULTS" in result.stdout


def test_missing_kernels_are_explained(monkeypatch):
    monkeypatch.setattr(cpu.native, "extension", None)
    monkeypatch.setattr(cpu, "missing_reason", "no module named [_native]")
    result = run()
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "present no: no module named [_native]" in text
    assert "CPU tensors torch (cpu: the compiled kernels are missing: no module named" in text


def test_extras_are_found_without_importing_them(monkeypatch):
    monkeypatch.setattr(diagnostics, "EXTRAS", ("pytest", "no-such-package"))
    assert diagnostics.extras() == {"pytest": pytest.__version__, "no-such-package": None}


def test_override_of_the_instruction_set_is_told(monkeypatch):
    monkeypatch.setenv("ADASPARSE_ISA", "baseline")
    assert diagnostics.kernels()["isa_override"] == "baseline"
    if cpu.is_available():
        assert "ADASPARSE_ISA=baseline" in diagnostics.backends()["cpu"]["reason"]
