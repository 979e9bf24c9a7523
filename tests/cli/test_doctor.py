import json
import sys

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
        "gpus",
        "triton",
        "threads",
        "extras",
        "self_check",
        "gpu_checks",
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
    monkeypatch.setattr(
        adasparse, "entmax", lambda *args, **options: right(*args, **options) * wrong
    )
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


GPU = {
    "device": "cuda:0",
    "name": "A GPU",
    "architecture": "sm_90",
    "memory_gib": 80.0,
    "runtime": "CUDA 13.0",
}
FINE = {
    "ok": True,
    "weight_error": 1e-7,
    "gradient_error": 1e-6,
    "attention_error": 2e-7,
    "attention_gradient_error": 3e-6,
}


@pytest.mark.parametrize(
    ("check", "code", "text"),
    [
        (FINE, 0, "fine: weights 1.0e-07, gradients 1.0e-06, attention 2.0e-07 and 3.0e-06"),
        ({**FINE, "ok": False}, 1, "WRONG RESULTS: weights"),
        ({"ok": False, "error": "CompilationError: no"}, 1, "WRONG RESULTS: CompilationError: no"),
    ],
    ids=["fine", "wrong", "error"],
)
def test_gpus_are_shown_and_checked(monkeypatch, check, code, text):
    named = {"device": "cuda:0", "backend": "triton"}
    monkeypatch.setattr(diagnostics, "gpus", lambda: [GPU])
    monkeypatch.setattr(diagnostics, "gpu_checks", lambda: [named | check])
    result = run()
    assert result.exit_code == code
    shown = " ".join(result.stdout.split())
    assert "cuda:0 A GPU, sm_90, 80.0 GiB, CUDA 13.0" in shown
    assert f"cuda:0, triton {text}" in shown


def test_attention_of_the_check_is_right_on_the_cpu():
    assert diagnostics._check_attention("cpu", "auto")["ok"]


def test_a_device_that_fails_is_reported(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def fail(**options):
        raise RuntimeError("ptxas is missing\nand more")

    monkeypatch.setattr(diagnostics, "self_check", fail)
    (check,) = diagnostics.gpu_checks()
    assert not check["ok"] and check["error"] == "RuntimeError: ptxas is missing"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS names its processors")
@pytest.mark.parametrize(
    ("name", "told"), [("Maker X", "Maker X family 26"), ("Maker 9754", "Maker 9754")]
)
def test_processors_without_a_number_are_told_by_family(name, told, monkeypatch):
    """Two generations of one maker had one name in published measurements."""
    facts = {"model name": name, "cpu family": "26", "flags": "avx2"}
    monkeypatch.setattr(diagnostics, "_cpuinfo", lambda: facts)
    assert diagnostics.processor()["model"] == told
