"""Weights of attention calls in blocks, against the whole matrix."""

import numpy as np
import pytest
import torch

from adasparse.analysis.recording import attention_weights
from adasparse.analysis.recording.attention_weights import sparse_weights, weight_blocks
from adasparse.integrations.calls import AttentionCall

B, H, G, Q, K, D = 2, 4, 2, 7, 7, 5


def call(**options):
    generator = torch.Generator().manual_seed(3)

    def randn(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    tensors = {"query": randn(B, H, Q, D), "key": randn(B, G, K, D), "value": randn(B, G, K, D)}
    alpha = torch.tensor([1.0, 1.3, 1.5, 2.0], dtype=torch.float64)
    return AttentionCall(**{"module": torch.nn.Identity(), "alpha": alpha, **tensors, **options})


SLOPES = torch.tensor([0.0, 0.3, 1.0, 2.0], dtype=torch.float64)
CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "alibi": {"slopes": SLOPES},  # once wrong in blocks: distances to both sides
    "causal-alibi": {"slopes": SLOPES, "is_causal": True},
    "mask": {"mask": torch.rand(B, 1, Q, K, generator=torch.Generator().manual_seed(1)) > 0.4},
    "bias": {"mask": torch.linspace(-2, 2, H * K).reshape(1, H, 1, K).double()},
    "lengths": {"key_lengths": torch.tensor([7, 3]), "is_causal": True},
    "window": {"window": (2, 1)},
    "causal-window": {"window": (2, None), "is_causal": True, "slopes": SLOPES},
    "softcap": {"softcap": 0.5, "is_causal": True},
    "sinks": {"sinks": torch.tensor([0.0, -1.0, 0.5, 2.0]).double(), "is_causal": True},
    "temperature": {"adapts_temperature": True, "alpha": 1.0, "is_causal": True},
    "one-alpha": {"alpha": torch.tensor([1.7], dtype=torch.float64)},
}


def dense(found):
    b, h, q, k = found.shape
    row = np.repeat(np.arange(b * h * q), np.diff(found.crow))
    matrix = np.zeros((b * h * q, k))
    matrix[row, found.col] = found.value
    return matrix.reshape(found.shape)


@pytest.mark.parametrize("size", [1, 60, 2**21])
@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_blocks_are_parts_of_the_whole(options, size, monkeypatch):
    monkeypatch.setattr(attention_weights, "BLOCK_SIZE", size)
    given = call(**options)
    expected = given.weights().numpy()
    np.testing.assert_allclose(dense(sparse_weights(given, top=None)), expected, atol=1e-6)
    rows = torch.tensor([0, 3, 4, 6])
    for i in range(B):
        seen = 0
        for block, weights in weight_blocks(given, i, rows):
            assert block.start == seen
            assert size < 60 or weights.numel() <= size or len(rows[block]) == 1
            part, k = expected[i][:, rows[block].numpy()], weights.shape[-1]
            np.testing.assert_allclose(weights, part[..., :k], atol=1e-12)
            assert not part[..., k:].any()
            seen = block.stop
        assert seen == len(rows)


@pytest.mark.parametrize("size", [1, 60, 2**21])
def test_the_largest_are_kept_and_all_are_counted(size, monkeypatch):
    monkeypatch.setattr(attention_weights, "BLOCK_SIZE", size)
    given = call(is_causal=True)
    expected = given.weights().numpy()
    found = sparse_weights(given, top=2)
    cut = np.sort(expected, axis=-1)[..., -2:-1]
    np.testing.assert_allclose(dense(found), np.where(expected >= cut, expected, 0), atol=1e-6)
    np.testing.assert_array_equal(found.support.reshape(B, H, Q), (expected > 0).sum(-1))
    np.testing.assert_array_equal(found.visible, [range(1, Q + 1)] * B)
