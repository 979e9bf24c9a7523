from contextlib import nullcontext

import pytest
import torch

from adasparse.bench import devices
from adasparse.bench.results import Settings, signature
from adasparse.bench.timing import best_times


class Event:
    """A CUDA event of a clock that calls of ``work`` advance."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Event.now

    def synchronize(self):
        self.is_done = True

    def elapsed_time(self, end):
        assert end.is_done  # else the device may not have got there
        return end.at - self.at


@pytest.fixture
def work(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(Event.now))

    def advance():
        Event.now += 8.0

    yield advance
    assert waits


def test_gpus_are_timed_by_their_events(work):
    assert devices.seconds_per_call(work, 5, "cuda") == pytest.approx(0.008)
    assert best_times({"a": work}, repeats=2, device="cuda:1") == {"a": pytest.approx(0.008)}


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("cpu", ""),
        ("cuda", "PyTorch sees no GPU"),
        ("mps", "benchmarks run on cpu or cuda; got 'mps'"),
        ("gpu", "PyTorch knows no device 'gpu'"),
    ],
)
def test_missing_devices_are_explained(monkeypatch, device, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.why_missing(device) == reason


def test_an_index_beyond_the_last_gpu_is_explained(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.why_missing("cuda:1") == ""
    assert devices.why_missing("cuda:2") == "PyTorch sees GPUs 0 to 1; got 'cuda:2'"


def test_results_name_the_gpu(monkeypatch):
    found = {"cpu": "a CPU", "isa": "Triton 3.7", "gpu": "A GPU"}
    monkeypatch.setattr(devices, "facts", lambda device: found)
    settings = Settings(
        benchmark="attention",
        threads=1,
        repeats=2,
        seed=0,
        is_quick=False,
        device="cuda",
        dtype="bfloat16",
    )
    result = settings.result(skipped=[], results=[])
    assert result["command"].endswith("--device cuda --dtype bfloat16")
    assert signature(result).startswith("attention | gpu:A-GPU isa:Triton-3.7")
