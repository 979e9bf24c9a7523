"""Peak memory of attention, each measurement in a process of its own."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from adasparse.bench import calls, devices
from adasparse.bench.calls import BOTH, OURS
from adasparse.bench.results import Row, Settings

UNAVAILABLE = "peak memory: it is read from /proc, which this system does not have"

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True, kw_only=True)
class MemoryCase:
    """Peak memory of forward and backward beside the size of dense weights.

    Args:
        name: Name on the command line.
        title: Name in tables.
        shape: ``(b, h, n, d)`` of query, key and value.
        bar: Largest acceptable peak in GiB.
    """

    name: str
    title: str = "peak extra memory"
    shape: tuple[int, int, int, int]
    bar: float | None = None

    def quick(self) -> "MemoryCase":
        """Take an eighth of the tokens."""
        b, h, n, d = self.shape
        return replace(self, shape=(b, h, max(1, n // 8), d), bar=None)

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""
        return None if settings.device != "cpu" or is_available() else UNAVAILABLE

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Measure once: memory does not vary as time does."""
        is_cpu = settings.device == "cpu"
        if is_cpu:
            threads, seed = settings.num_threads, settings.seed
            peak = peak_extra_gib(OURS, self.shape, threads=threads, seed=seed)
        else:
            peak = _peak_on_device(self.shape, settings)
        b, h, n, _ = self.shape
        dense = b * h * n * n * devices.DTYPES[settings.dtype].itemsize / 2**30
        bar = self.bar if is_cpu else None
        yield {"direction": BOTH, "gib": peak, "dense_gib": dense, "bar": bar}


def _peak_on_device(shape: tuple[int, int, int, int], settings: Settings) -> float:
    generator = torch.Generator().manual_seed(settings.seed)
    *inputs, grad = (
        torch.randn(shape, generator=generator).to(settings.device, devices.DTYPES[settings.dtype])
        for _ in range(4)
    )
    call = calls.both(calls.attention(OURS), *inputs, grad=grad)
    return devices.peak_extra_bytes(call, settings.device) / 2**30


def is_available() -> bool:
    """Whether this system reports the peak memory of a process."""
    return _CLEAR.exists()


def peak_extra_gib(
    name: str, shape: tuple[int, int, int, int], *, threads: int, seed: int
) -> float:
    """GiB that forward and backward take at their peak, on top of inputs and incoming gradient.

    Args:
        name: One of the attentions of ``calls``.
        shape: ``(b, h, n, d)`` of query, key and value.
        threads: CPU threads.
        seed: Seed of the tokens.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_measure, name, shape, threads, seed).result() / 2**20


def _measure(name: str, shape: tuple[int, int, int, int], threads: int, seed: int) -> int:
    """Measure in KiB, as the first thing that this process does."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(seed)
    attend = calls.attention(name)
    *inputs, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    call = calls.both(attend, *inputs, grad=grad)
    # Libraries and threads that any first call loads are not part of the measurement.
    calls.both(attend, *(x[..., :8, :] for x in inputs), grad=grad[..., :8, :])()
    _CLEAR.write_text("5")  # the peak so far is forgotten
    before = _kib("VmRSS")
    call()
    return _kib("VmHWM") - before


def _kib(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
