"""The length benchmark: time and memory of attention as sequences grow."""

import contextlib
from concurrent.futures.process import BrokenProcessPool

import torch

from adasparse.bench import calls, memory
from adasparse.bench.calls import OURS, PACKAGE, SOFTMAX
from adasparse.bench.results import Progress, Result, Row, Settings
from adasparse.bench.timing import best_times

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
#: The longest sequences for the package: minutes of time, gigabytes of memory.
PACKAGE_TIMED, PACKAGE_WEIGHED = 2048, 4096
BATCH, NUM_HEADS, HEAD_DIM = 1, 8, 64


def measure(settings: Settings, progress: Progress) -> Result:
    """Take all measurements: a row for each function at each length."""
    wanted, shrink = (LENGTHS[::2], 8) if settings.is_quick else (LENGTHS, 1)
    has_package, has_memory = calls.has_entmax_package(), memory.is_available()
    rows: list[Row] = []
    for done, length in enumerate(wanted):
        progress(f"{length // shrink} tokens", done, len(wanted))
        shape = (BATCH, NUM_HEADS, length // shrink, HEAD_DIM)
        names = [OURS, SOFTMAX]
        timed = names + [PACKAGE] * (has_package and length <= PACKAGE_TIMED)
        weighed = names + [PACKAGE] * (has_package and length <= PACKAGE_WEIGHED)
        ms = _milliseconds(timed, shape, settings)
        gib = _gib(weighed, shape, settings) if has_memory else {}
        rows += [
            {"name": name, "shape": list(shape), "ms": ms.get(name), "gib": gib.get(name)}
            for name in (OURS, SOFTMAX, PACKAGE)
            if name in ms or name in gib
        ]
    skipped = [] if has_package else [calls.PACKAGE_MISSING]
    skipped += [] if has_memory else [memory.UNAVAILABLE]
    return settings.result(skipped=skipped, results=rows)


def _milliseconds(
    names: list[str], shape: tuple[int, int, int, int], settings: Settings
) -> dict[str, float]:
    generator = torch.Generator().manual_seed(settings.seed)
    *inputs, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    times = best_times(
        {name: calls.both(calls.attention(name), *inputs, grad=grad) for name in names},
        repeats=settings.rounds,
        seconds=settings.seconds,
    )
    return {name: 1000 * seconds for name, seconds in times.items()}


def _gib(
    names: list[str], shape: tuple[int, int, int, int], settings: Settings
) -> dict[str, float]:
    """Return the peak of each function, except those that the system ended for taking too much."""
    peaks = {}
    for name in names:
        with contextlib.suppress(BrokenProcessPool):
            peaks[name] = memory.peak_extra_gib(
                name, shape, threads=settings.num_threads, seed=settings.seed
            )
    return peaks
