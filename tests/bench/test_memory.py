import pytest

from adasparse.bench import memory
from adasparse.bench.calls import SOFTMAX

measured_peak = memory.peak_extra_gib  # before the tests of this directory replace it


@pytest.mark.skipif(not memory.is_available(), reason="the peak is read from Linux's /proc")
def test_peak_is_that_of_the_call_alone():
    shape = (1, 2, 4096, 64)  # 2 MiB for each tensor
    mib = 1024 * measured_peak(SOFTMAX, shape, threads=1, seed=0)
    assert 4 * 2 <= mib < 40  # output and three gradients, but neither inputs nor torch itself
