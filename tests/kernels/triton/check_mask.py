"""The bit mask of key blocks, and the passes over the keys."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from adasparse.kernels import reference
from adasparse.kernels.triton import attention_forward, tuning
from support.triton_problems import DEVICE, make, on_device

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def mask_bits(words, num_k_blocks):
    """``(b h, q blocks, k blocks)`` of bools."""
    bits = (words.cpu().unsqueeze(-1) >> torch.arange(32)) & 1
    return bits.flatten(2)[..., :num_k_blocks].bool()


def blocks_of(problem):
    tiles = tuning.tiles_for(
        tuning.target_of(torch.device(DEVICE)), problem.query.shape[-1], problem.query.dtype
    )
    return tiles.block_m, tiles.block_n


def supported_blocks(problem):
    """Blocks that hold a weight of the reference, ``(b h, q blocks, k blocks)``."""
    b, h, q, _ = problem.query.shape
    k = problem.key.shape[2]
    eye = torch.eye(k, dtype=torch.float64).expand(b, problem.key.shape[1], k, k)
    weights, _ = reference.attention_forward(
        type(problem)(**{**vars(problem), "value": eye}), keep=False
    )
    m, n = blocks_of(problem)
    pad = (0, -k % n, 0, -q % m)
    tiles = torch.nn.functional.pad(weights, pad).reshape(b * h, -1, m, (k + pad[1]) // n, n)
    return tiles.amax((2, 4)) > 1e-9  # rounding decides about weights that are nearly zero


CASES = hypothesis.given(
    seed=st.integers(0, 1000),
    alpha=st.sampled_from([1.0, 1.2, 1.5, 1.8, 2.0]),
    spread=st.sampled_from([0.05, 1.0, 8.0]),
    is_causal=st.booleans(),
)


@hypothesis.settings(max_examples=3)
@CASES
def test_no_supported_block_is_missing(seed, alpha, spread, is_causal):
    assert_no_supported_block_is_missing(seed, alpha, spread, is_causal)


@pytest.mark.slow
@hypothesis.settings(max_examples=30)
@CASES
def test_no_supported_block_of_many_cases_is_missing(seed, alpha, spread, is_causal):
    assert_no_supported_block_is_missing(seed, alpha, spread, is_causal)


def assert_no_supported_block_is_missing(seed, alpha, spread, is_causal):
    problem, _ = make(
        h=1, alpha=[alpha], q=70, k=260, spread=spread, seed=seed, is_causal=is_causal
    )
    _, saved = attention_forward(on_device(problem), keep=True)
    wanted = supported_blocks(problem)
    assert mask_bits(saved.words, wanted.shape[-1])[wanted].all()


@pytest.mark.parametrize("alpha", [1.3, slow(1.5), slow(2.0)])
def test_one_bit_where_one_block_holds_everything(alpha):
    problem, _ = make(h=1, alpha=alpha, q=64, k=64 * 40, spread=0.1)
    _, n = blocks_of(problem)
    problem.query[...] = torch.randn(1, 1, 1, 16, generator=torch.Generator().manual_seed(0))
    problem.key[0, 0, n * 35 : n * 36] = 30 * problem.query[0, 0, 0]
    output, saved = attention_forward(on_device(problem), keep=True)
    wanted, _ = reference.attention_forward(problem, keep=False)
    assert (output.cpu() - wanted).abs().max() < 1e-5
    bits = mask_bits(saved.words, -(-problem.key.shape[2] // n))
    assert (bits.sum(-1) == 1).all() and bits[..., 35].all()


@pytest.mark.parametrize(
    ("alpha", "most_masked"), [(1.5, 1), slow(2.0, 1), (1.3, 3), slow(1.75, 4)]
)
def test_two_passes_over_all_keys(alpha, most_masked):
    problem, _ = make(h=1, alpha=alpha, q=64, k=640, spread=3.0)
    m, n = blocks_of(problem)
    programs = -(-64 // m)
    counts = torch.zeros(programs, 2, dtype=torch.int32, device=DEVICE)
    attention_forward(on_device(problem), keep=True, counts=counts)
    assert (counts[:, 0] == 2 * -(-640 // n)).all()
    assert (counts[:, 1] <= most_masked).all()


def test_softmax_takes_one_pass():
    problem, _ = make(h=1, alpha=1.0, q=64, k=640)
    counts = torch.zeros(1, 2, dtype=torch.int32, device=DEVICE)
    attention_forward(on_device(problem), keep=True, counts=counts)
    assert (counts == 0).all()  # the kernel with two passes did not run
