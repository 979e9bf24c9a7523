"""Recordings for other tools."""

import numpy as np
import pytest
import torch

from adasparse.analysis import record, to_bertviz
from support.sample_models import SOURCE, TARGET, sparse, tokenizer


def test_bertviz_gets_a_tensor_for_each_layer():
    recording = record(sparse("marian"), tokenizer(), SOURCE, TARGET)
    sentence = recording.sentences[1]
    for kind in ("encoder", "decoder", "context"):
        layers = to_bertviz(recording, sentence=1, kind=kind)
        queries, keys = sentence.tokens(kind)
        assert isinstance(layers, tuple)
        assert len(layers) == recording.header.size(kind)[0]
        for layer, expected in zip(layers, sentence.attention[kind], strict=True):
            assert layer.shape == (1, 4, len(queries), len(keys))
            assert layer.dtype == torch.float32
            np.testing.assert_array_equal(layer[0].numpy(), expected.dense())
    assert len(to_bertviz(recording)) == 2


def test_mistakes_are_named():
    recording = record(sparse("llama"), tokenizer(), SOURCE[:2])
    with pytest.raises(ValueError, match=r"one of \('decoder',\); got 'context'"):
        to_bertviz(recording, kind="context")
    with pytest.raises(ValueError, match="from 0 to 1; got 2"):
        to_bertviz(recording, sentence=2)
