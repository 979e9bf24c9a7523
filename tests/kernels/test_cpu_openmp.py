"""Threads of the kernels: those of PyTorch's OpenMP runtime, which exists once in a process."""

import json
import subprocess
import sys

import pytest

from adasparse.kernels import cpu

pytestmark = [
    pytest.mark.skipif(not cpu.is_available(), reason="the compiled kernels are not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SCRIPT = """
import json, os
import torch
import adasparse
from adasparse.kernels import cpu

def count_threads():
    return len(os.listdir("/proc/self/task"))

def run():
    adasparse.entmax_attention(*torch.randn(3, 4, 8, 256, 32), alpha=1.5)

torch.set_num_threads(1)
run()
single = count_threads()
torch.set_num_threads(3)
run()
started = count_threads()
torch.randn(1000, 1000).exp()  # torch's own parallel loop
shared = count_threads()
run()
with open("/proc/self/maps") as maps:
    names = {line.split("/")[-1].strip() for line in maps if "/" in line}
print(json.dumps({
    "started": started - single,
    "by_torch": shared - started,
    "again": count_threads() - shared,
    "runtimes": sorted(n for n in names if n.startswith(("libgomp", "libomp", "libiomp"))),
    "has_openmp": cpu.has_openmp(),
}))
"""


def test_threads_are_those_of_torch():
    found = json.loads(
        subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
        ).stdout
    )
    assert found["has_openmp"]
    assert len(found["runtimes"]) == 1, found
    assert found["started"] == 2  # set_num_threads is respected
    assert found["by_torch"] == found["again"] == 0  # the same threads serve both
