"""The explorer gets what was recorded and measured."""

import base64
import json

import numpy as np
import pytest

from adasparse.analysis import record
from adasparse.analysis.explorer.payload import MeasuredRun, build_payload, sentence_payload
from adasparse.analysis.measures.collect import measure_heads
from support.sample_models import SOURCE, dense, tokenizer
from support.sample_payload import sample_payload, sample_recordings


def unpack(head, rows, columns):
    """The dense matrix of a head, read as the page reads it."""
    crow = np.frombuffer(base64.b64decode(head["crow"]), "<u4")
    col = np.frombuffer(
        base64.b64decode(head["col"]), {"uint16": "<u2", "uint32": "<u4"}[head["col_type"]]
    )
    value = np.frombuffer(base64.b64decode(head["value"]), "<u2") / 65535
    assert len(crow) == rows + 1
    assert crow[-1] == len(col) == len(value)
    matrix = np.zeros((rows, columns))
    for i in range(rows):
        assert (np.diff(col[crow[i] : crow[i + 1]].astype(int)) > 0).all()
        matrix[i, col[crow[i] : crow[i + 1]]] = value[crow[i] : crow[i + 1]]
    return matrix


@pytest.mark.parametrize("name", ["marian", "llama", "bert"])
def test_attention_can_be_read_back(name):
    payload = json.loads(json.dumps(sample_payload(name), allow_nan=False))
    for run, recording in zip(payload["runs"], sample_recordings(name), strict=True):
        for shown, sentence in zip(run["sentences"], recording.sentences, strict=True):
            assert shown["source"] == list(sentence.source.tokens)
            for group in run["groups"]:
                layers = sentence.attention[group["kind"]]
                q, k = (len(shown[group[side]]) for side in ("queries", "keys"))
                for layer, heads in zip(layers, shown["attention"][group["kind"]], strict=True):
                    expected = layer.dense()
                    for head, matrix in zip(heads, expected, strict=True):
                        actual = unpack(head, q, k)
                        np.testing.assert_allclose(actual, matrix, atol=1.01 / 65535)
                        np.testing.assert_array_equal(actual == 0, matrix == 0)


def test_the_schema_is_as_described():
    payload = sample_payload()
    assert payload["version"] == 1
    keys = [measure["key"] for measure in payload["measures"]]
    assert keys[:2] == ["alpha", "density"]
    assert {measure["format"] for measure in payload["measures"]} == {"alpha", "percent", "number"}
    assert [run["name"] for run in payload["runs"]] == ["softmax", "entmax"]
    for run in payload["runs"]:
        assert run["kind"] == "translation"
        assert run["sentences_measured"] == len(SOURCE)
        assert [group["kind"] for group in run["groups"]] == ["encoder", "decoder", "context"]
        for group in run["groups"]:
            shape = [group["heads"]] * group["layers"]
            assert len(group["modules"]) == group["layers"]
            assert set(group["values"]) == set(group["intervals"]) <= set(keys)
            for field in ("values", "intervals"):
                for values in group[field].values():
                    assert [len(row) for row in values] == shape
            assert [len(row) for row in group["roles"]] == shape
            assert len(group["layer_values"]["diversity"]) == group["layers"]
            low, high = group["intervals"]["density"][0][0]
            assert low <= group["values"]["density"][0][0] <= high
            assert group["intervals"]["alpha"][0][0] is None
        assert all(isinstance(sentence, str) for sentence in run["summary"])
        sentence = run["sentences"][0]
        assert len(sentence["target"]) == len(sentence["target_next"])
        assert sentence["target"][1:] == sentence["target_next"][:-1]


def test_models_of_one_sequence_have_no_target():
    run = sample_payload("llama")["runs"][0]
    assert run["kind"] == "decoder"
    (group,) = run["groups"]
    assert (group["kind"], group["queries"], group["keys"]) == ("decoder", "source", "source")
    assert run["sentences"][0]["target"] is None
    assert run["sentences"][0]["target_next"] is None


def test_sentences_that_do_not_fit_are_left_out():
    whole = sample_payload()
    sizes = [len(json.dumps([run["sentences"][i] for run in whole["runs"]])) for i in range(6)]
    some = sample_payload(max_bytes=sizes[0] + sizes[2] + sizes[5] // 2)
    for run in some["runs"]:
        assert [sentence["id"] for sentence in run["sentences"]] == [0, 2]
        assert run["sentences"][0]["top"] is None


def test_a_first_sentence_that_is_too_large_keeps_its_largest_weights():
    recording = record(dense("llama"), tokenizer(), [" ".join(SOURCE)])
    whole = len(json.dumps(sentence_payload(recording.sentences[0])))
    run = MeasuredRun(measures=measure_heads(recording, resamples=5), sentences=recording.sentences)
    payload = build_payload([run], title="x", max_bytes=whole // 3)
    shown = payload["runs"][0]["sentences"][0]
    assert shown["top"] in (32, 16, 8)
    n = len(shown["source"])
    matrix = unpack(shown["attention"]["decoder"][0][0], n, n)
    expected = recording.sentences[0].attention["decoder"][0].dense()[0]
    assert ((matrix > 0).sum(1) <= shown["top"]).all()
    assert (matrix.argmax(1) == expected.argmax(1)).all()


def test_a_first_sentence_that_is_still_too_large_keeps_its_first_tokens():
    recording = record(dense("llama"), tokenizer(), [" ".join(SOURCE)])
    run = MeasuredRun(measures=measure_heads(recording, resamples=5), sentences=recording.sentences)
    smallest = len(json.dumps(sentence_payload(recording.sentences[0], top=1)))
    payload = build_payload([run], title="x", max_bytes=smallest * 2 // 3)
    [shown] = payload["runs"][0]["sentences"]
    assert len(json.dumps(shown)) <= smallest * 2 // 3
    assert (shown["top"], shown["first"], len(shown["source"])) == (1, 32, 32)
    expected = recording.sentences[0].attention["decoder"][0].dense()[0, :32, :32]
    matrix = unpack(shown["attention"]["decoder"][0][0], 32, 32)
    assert (matrix.argmax(1) == expected.argmax(1)).all()
    assert ((matrix > 0).sum(1) == 1).all()


def test_long_texts_are_shortened():
    recording = record(dense("llama"), tokenizer(), [" ".join(SOURCE * 200)], max_length=16)
    shown = sentence_payload(recording.sentences[0])
    assert len(shown["source_text"]) == 10_002 and shown["source_text"].endswith(" …")


def test_values_that_are_not_defined_are_null():
    recording = record(dense("bert"), tokenizer(), ["Ja.", "Ein Hund."])
    run = MeasuredRun(measures=measure_heads(recording, resamples=5), sentences=recording.sentences)
    group = build_payload([run], title="x")["runs"][0]["groups"][0]
    assert group["values"]["interrogation"] == [[None] * 4] * 2
    assert group["intervals"]["interrogation"] == [[None] * 4] * 2


def test_names_must_differ():
    recording = record(dense("bert"), tokenizer(), SOURCE[:1], name="a")
    run = MeasuredRun(measures=measure_heads(recording, resamples=5), sentences=[])
    with pytest.raises(ValueError, match=r"different names; got \['a', 'a'\]"):
        build_payload([run, run], title="x")
