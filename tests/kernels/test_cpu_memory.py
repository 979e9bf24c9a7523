"""Memory of the kernels: errors where it is exhausted, large pages for large results."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adasparse.kernels import AttentionProblem, LossProblem, cpu

pytestmark = [
    pytest.mark.skipif(not cpu.is_available(), reason="the compiled kernels are not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits the address space"),
]

# The address space of a child is limited to what it has plus some MB. Threads are started before:
# the OpenMP runtime itself ends a process in which it cannot start them.
SCRIPT = """
import json, os, resource, sys
import torch
from adasparse.kernels import AttentionProblem, LossProblem, cpu

torch.set_num_threads(2)
alpha = torch.tensor([1.05], dtype=torch.float64)
n = 6000

def attention(n):
    x = torch.randn(3, 1, 4, n, 64)
    return AttentionProblem(
        query=x[0], key=x[1], value=x[2], alpha=alpha.reshape(1, 1, 1, 1), scale=0.125
    )

def calls(name, n):
    if name.startswith("attention"):
        problem = attention(n)
        if name == "attention_forward":
            return lambda: cpu.attention_forward(problem, keep=True)
        if name == "attention_support":
            return lambda: cpu.attention_support(problem)
        out, saved = cpu.attention_forward(problem, keep=True)
        return lambda: cpu.attention_backward(problem, saved, out, frozenset({"query", "alpha"}))
    scores = torch.randn(n // 50, n * 5).to(torch.bfloat16)
    if name == "entmax_forward":
        return lambda: cpu.entmax_forward(scores, alpha)
    if name == "entmax_backward":
        weights = cpu.entmax_forward(scores, alpha)
        return lambda: cpu.entmax_backward(weights, scores, alpha, with_alpha=True)
    problem = LossProblem(scores=scores, alpha=alpha, index=torch.zeros(len(scores)).long())
    loss, saved = cpu.loss_forward(problem)
    if name == "loss_forward":
        return lambda: cpu.loss_forward(problem)
    return lambda: cpu.loss_backward(problem, saved, loss, with_alpha=True)

def outcome_of(name, megabytes):
    small, large = calls(name, 60), calls(name, n)
    small()
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        large()
        outcome = "success"
    except MemoryError:
        outcome = "MemoryError"
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    small()
    return outcome

outcomes = {}
for name, megabytes in ((name, x) for name, xs in json.loads(sys.argv[1]) for x in xs):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, outcome_of(name, megabytes).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 10000).decode()
    os.close(read)
    _, status = os.waitpid(child, 0)
    outcomes.setdefault(name, {})[megabytes] = text if status == 0 else f"died with status {status}"
print(json.dumps(outcomes))
"""


#: Megabytes that a call may have, at which memory is exhausted in different places.
MEGABYTES = {
    "attention_forward": [2, 8, 14, 20, 26, 40],
    "attention_support": [2, 14, 26, 40],
    "attention_backward": [2, 14, 26, 40],
    "entmax_forward": [0, 1, 4, 64],
    "entmax_backward": [0, 1, 4, 64],
    "loss_forward": [0, 1],
    "loss_backward": [0, 1, 4, 64],
}


def outcomes_of(megabytes):
    """How calls end, by name and megabytes, each in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(list(megabytes.items()))],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def usual_outcomes():
    return outcomes_of(MEGABYTES)


def assert_errors_can_be_caught(call, megabytes, outcomes):
    assert len(outcomes) == len(megabytes)
    assert set(outcomes.values()) <= {"MemoryError", "success"}, outcomes
    if call != "loss_forward":
        assert "MemoryError" in outcomes.values(), outcomes


@pytest.mark.parametrize("call", MEGABYTES)
def test_exhausted_memory_is_an_error_that_can_be_caught(call, usual_outcomes):
    # std::bad_alloc in a thread once ended the process.
    assert_errors_can_be_caught(call, MEGABYTES[call], usual_outcomes[call])


@pytest.mark.slow
def test_memory_exhausted_anywhere_is_an_error_that_can_be_caught():
    call, megabytes = "attention_forward", list(range(2, 41, 2))
    assert_errors_can_be_caught(call, megabytes, outcomes_of({call: megabytes})[call])


SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_kilobytes_at(address):
    """Return how much of the mapping of memory at ``address`` is in large pages."""
    maps = Path("/proc/self/smaps").read_text()
    for mapping in re.finditer(r"^(\w+)-(\w+) .*?^AnonHugePages: +(\d+) kB", maps, re.M | re.S):
        first, last, kilobytes = mapping.groups()
        if int(first, 16) <= address < int(last, 16):
            return int(kilobytes)
    raise LookupError(hex(address))


needs_large_pages = pytest.mark.skipif(
    not SETTING.exists() or "[madvise]" not in SETTING.read_text(),
    reason="this system gives large pages to none, or to all",
)


@needs_large_pages
def test_large_outputs_and_gradients_lie_in_large_pages():
    # In pages of 4 KB, half of a packed backward was spent waiting for fresh ones.
    query, key = torch.randn(1, 1, 150_000, 64), torch.randn(1, 1, 2, 64)
    problem = AttentionProblem(
        query=query, key=key, value=key, alpha=torch.full((1, 1, 1, 1), 1.5).double(), scale=0.125
    )
    out, saved = cpu.attention_forward(problem, keep=True)
    gradients = cpu.attention_backward(problem, saved, out, frozenset({"query"}))
    for result in (out, gradients.query):
        assert huge_kilobytes_at(result.data_ptr() + result.nbytes // 2) > 0
    assert huge_kilobytes_at(query.data_ptr() + query.nbytes // 2) == 0  # made by PyTorch


@needs_large_pages
def test_rows_and_their_gradients_lie_in_large_pages():
    # Rows of 32,000 classes once took twice the time, half of it for fresh pages of 4 KB.
    scores, alpha = torch.randn(400, 32_000), torch.tensor([1.5], dtype=torch.float64)
    weights = cpu.entmax_forward(scores, alpha)
    gradient, _ = cpu.entmax_backward(weights, scores, alpha, with_alpha=False)
    problem = LossProblem(scores=scores, alpha=alpha, index=torch.zeros(400).long())
    loss, saved = cpu.loss_forward(problem)
    loss_gradient, _ = cpu.loss_backward(problem, saved, loss, with_alpha=False)
    for result in (weights, gradient, loss_gradient):
        assert huge_kilobytes_at(result.data_ptr() + result.nbytes // 2) > 0
