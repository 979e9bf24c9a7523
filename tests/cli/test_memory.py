"""What commands do so that memory is not fetched again and again."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys, torch
from adasparse.cli.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        tensors = [torch.ones(size << 20) for size in (1, 1, 20)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
faults()
print(faults())
"""


def faults(environment):
    command = [sys.executable, "-c", CODE]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(run.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="for glibc")
def test_freed_memory_is_used_again():
    assert faults({"OMP_NUM_THREADS": "1"}) < 100


@pytest.mark.skipif(sys.platform != "linux", reason="for glibc")
def test_settings_of_the_user_stay():
    assert faults({"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "1000000"}) > 10_000
