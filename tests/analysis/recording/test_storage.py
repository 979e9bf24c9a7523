"""A recording survives its file."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from adasparse.analysis import load_recording, record, save_recording
from adasparse.analysis.recording.storage import Recording
from support.sample_models import SOURCE, TARGET, dense, sparse, tokenizer


def recordings():
    yield record(sparse("marian"), tokenizer(), SOURCE, TARGET)
    yield record(dense("llama"), tokenizer(), SOURCE, top=4)
    yield record(sparse("bert"), tokenizer("bytes"), SOURCE)


def test_what_is_loaded_is_what_was_saved(tmp_path):
    for number, recording in enumerate(recordings()):
        path = tmp_path / "deep" / f"{number}.safetensors"
        save_recording(path, recording)
        loaded = load_recording(path)
        assert loaded.header == recording.header or vars(loaded.header) == vars(recording.header)
        for a, b in zip(loaded.sentences, recording.sentences, strict=True):
            for name in ("id", "source_text", "target_text", "source", "target", "written", "top"):
                assert getattr(a, name) == getattr(b, name)
            assert list(a.attention) == list(b.attention)
            for kind in a.attention:
                for x, y in zip(a.attention[kind], b.attention[kind], strict=True):
                    assert (x.shape, x.is_causal) == (y.shape, y.is_causal)
                    np.testing.assert_array_equal(x.dense(), y.dense())
                    np.testing.assert_array_equal(x.visible, y.visible)
                    np.testing.assert_array_equal(x.used, y.used)
        assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_a_recording_may_be_empty(tmp_path):
    recording = record(dense("bert"), tokenizer(), [])
    save_recording(tmp_path / "x", recording)
    assert load_recording(tmp_path / "x").sentences == []


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is none at"):
        load_recording(tmp_path / "none")
    (tmp_path / "text").write_text("hello, this is no safetensors file at all")
    with pytest.raises(ValueError, match="must be a safetensors file"):
        load_recording(tmp_path / "text")
    save_file({"x": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match="not a recording"):
        load_recording(tmp_path / "other")


def test_later_versions_and_damage_are_told(tmp_path):
    path = tmp_path / "x"
    recording = record(dense("bert"), tokenizer(), SOURCE[:1])
    save_recording(path, Recording(header=recording.header, sentences=recording.sentences))
    arrays = load_file(path)
    about = json.dumps({"header": {}, "sentences": []})
    save_file(arrays, path, {"format": "adasparse-recording", "version": "2", "about": about})
    with pytest.raises(ValueError, match=r"up to version 1 can be read.*of version 2"):
        load_recording(path)
    save_file(arrays, path, {"format": "adasparse-recording", "version": "1", "about": about})
    with pytest.raises(ValueError, match="damaged"):
        load_recording(path)
    save_recording(path, recording)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)
    with pytest.raises(ValueError, match="must be a safetensors file"):
        load_recording(path)
