from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from adasparse.bench import attention_cases, lengths, memory, ops_cases
from adasparse.cli.main import app

MACHINE = {"cpu": "Some CPU", "isa": "avx2", "threads": 2, "torch": "2.13", "adasparse": "1.0"}


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture
def result():
    """Fill in what every result has."""
    return lambda benchmark, rows: {
        "benchmark": benchmark,
        "command": f"adasparse bench {benchmark}",
        "machine": MACHINE,
        "seed": 0,
        "skipped": [],
        "results": rows,
    }


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(ops_cases, "SHAPES", ((32, 8), (16, 40)))
    monkeypatch.setattr(ops_cases, "PACKAGE_SHAPE", (32, 8))
    monkeypatch.setattr(ops_cases, "LOSS_SHAPE", (16, 40))
    monkeypatch.setattr(attention_cases, "CASES", tuple(map(smaller, attention_cases.CASES)))
    monkeypatch.setattr(lengths, "LENGTHS", (16, 32, 64))
    monkeypatch.setattr(lengths, "PACKAGE_TIMED", 16)
    monkeypatch.setattr(lengths, "PACKAGE_WEIGHED", 32)
    monkeypatch.setattr("adasparse.bench.timing.MIN_TURN", 1e-5)


def smaller(case):
    """The same case with few tokens and the same bars."""
    if isinstance(case, attention_cases.TimedCase):
        return replace(case, batch=min(case.batch, 8), length=min(case.length, 24))
    b, h, _, d = case.shape
    small = replace(case, shape=(b, h, 24, d))
    return replace(small, size=32) if isinstance(case, attention_cases.GemmCase) else small


@pytest.fixture(autouse=True)
def weighed(monkeypatch):
    """Start no process to measure memory; return what would have been measured."""
    asked = []

    def peak(name, shape, *, threads, seed):
        asked.append((name, shape[2]))
        return shape[2] / 1024

    monkeypatch.setattr(memory, "is_available", lambda: True)
    monkeypatch.setattr(memory, "peak_extra_gib", peak)
    return asked


@pytest.fixture(autouse=True)
def thread_settings(monkeypatch):
    # A real setting, even if put back, has torch's exp use threads for small vectors ever after:
    # on a busy machine later tests would crawl.
    settings = []
    monkeypatch.setattr(torch, "set_num_threads", settings.append)
    return settings
