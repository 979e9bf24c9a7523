"""A long document is recorded without a matrix of its length squared."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adasparse.analysis import Recorder
from adasparse.integrations.huggingface import SparsityConfig, sparsify
from support.sample_models import dense, tokenizer

LENGTH = 4096


class LargestTensor(TorchDispatchMode):
    """Sees how many numbers the largest tensor has that any operation returns."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor) and x.untyped_storage().nbytes():
                self.numel = max(self.numel, x.untyped_storage().nbytes() // x.element_size())
        return result


@pytest.mark.parametrize("is_sparse", [True, False], ids=["entmax", "softmax"])
def test_a_document_of_4096_tokens_needs_no_dense_matrix(is_sparse):
    options = {"max_position_embeddings": LENGTH, "num_attention_heads": 2, "head_dim": 8}
    model = dense("llama", num_hidden_layers=1, **options).float()
    if is_sparse:
        sparsify(model, SparsityConfig(alpha="fixed", init_alpha=1.5))
    recorder = Recorder(model, tokenizer(), max_length=LENGTH)
    with LargestTensor() as largest:
        tracemalloc.start()
        sentence = next(iter(recorder.sentences(["Der alte Hund liest. " * LENGTH])))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    layer = sentence.attention["decoder"][0]
    assert layer.shape == (2, LENGTH, LENGTH)
    assert sentence.top == 64
    assert layer.counts.max() <= 64
    assert largest.numel < LENGTH**2 / 2
    assert peak < 4 * LENGTH**2  # of arrays, at any time
    if not is_sparse:
        np.testing.assert_array_equal(layer.used[0], np.arange(1, LENGTH + 1))
        first = layer.of_head(1).dense()[0, :64, :64]
        np.testing.assert_allclose(first.sum(-1), 1, atol=1e-5)
