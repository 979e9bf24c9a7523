import gc
import os

import hypothesis
import pytest
import torch

from adasparse.kernels import cpu
from support.attention_case import slack_used

# Inductor would start a process to compile in, which imports all of PyTorch.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.load_profile("default")


@pytest.fixture(params=cpu.available_isas())
def isa(request):
    """Run the test once with every instruction set this processor has."""
    before = cpu.isa()
    cpu.use_isa(request.param)
    yield request.param
    cpu.use_isa(before)


def pytest_collection_finish():
    """Keep the garbage collector from walking through imported libraries again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Report how often, and how far, attention was allowed more than its tolerance."""
    if slack_used:
        terminalreporter.write_line(
            f"attention beyond its tolerance, as rounded scores allow: {len(slack_used)} times, "
            f"at most by {max(slack_used):.1f} times the tolerance"
        )


@pytest.fixture
def nan_filled_memory():
    """Fill fresh memory with NaN, so that an output left unwritten shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def set_threads():
    """Set the number of PyTorch's threads, which is restored however the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    doctest_namespace["torch"] = torch
