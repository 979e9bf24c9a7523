import sys
from pathlib import Path

import hypothesis
import pytest
import torch

from adasparse.kernels import cpu

sys.path.insert(0, str(Path(__file__).parent))
hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.load_profile("default")


@pytest.fixture(params=cpu.available_isas())
def isa(request):
    """Run the test once with every instruction set this processor has."""
    before = cpu.isa()
    cpu.use_isa(request.param)
    yield request.param
    cpu.use_isa(before)


@pytest.fixture
def nan_filled_memory():
    """Fill fresh memory with NaN, so that an output left unwritten shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    doctest_namespace["torch"] = torch
