"""What is recorded is what the model attends to, for every model and without padding."""

import itertools

import numpy as np
import pytest
import torch

from adasparse.analysis import Recorder, record, record_generated
from adasparse.longcontext import LongContextConfig, LongContextForCausalLM
from support.sample_models import (
    DECODERS,
    MODELS,
    SOURCE,
    TARGET,
    TRANSLATION,
    dense,
    sparse,
    tokenizer,
)

FIELDS = {
    "encoder": ("encoder_attentions", "attentions"),
    "decoder": ("decoder_attentions", "attentions"),
    "context": ("cross_attentions",),
}


def expected_weights(model, recorder, sentence):
    """The weights that the model itself gives for one sentence alone, by kind and layer."""
    inputs = {"input_ids": torch.tensor([sentence.source.ids])}
    if sentence.target is not None:
        inputs["decoder_input_ids"] = torch.tensor([sentence.target.ids])
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    found = {}
    for kind in recorder.header.kinds:
        name = next(x for x in FIELDS[kind] if getattr(output, x, None) is not None)
        found[kind] = [layer[0].numpy() for layer in getattr(output, name)]
    return found


def assert_recorded(model, recorder, sentences):
    for sentence in sentences:
        expected = expected_weights(model, recorder, sentence)
        assert set(sentence.attention) == set(expected)
        for kind, layers in expected.items():
            queries, keys = sentence.tokens(kind)
            assert len(sentence.attention[kind]) == len(layers)
            for actual, layer in zip(sentence.attention[kind], layers, strict=True):
                assert actual.shape == layer.shape
                assert actual.shape[1:] == (len(queries), len(keys))
                np.testing.assert_allclose(
                    actual.dense(), layer, atol=1e-5
                )  # eager softmax is float32
                assert (actual.value > 0).all()


@pytest.mark.parametrize("is_sparse", [False, True], ids=["softmax", "entmax"])
@pytest.mark.parametrize("name", MODELS)
def test_recorded_weights_are_those_of_the_model(name, is_sparse):
    model = sparse(name) if is_sparse else dense(name)
    recorder = Recorder(model, tokenizer(), batch_tokens=120)
    sentences = list(recorder.sentences(SOURCE, TARGET if name in TRANSLATION else None))
    assert [sentence.source_text for sentence in sentences] == SOURCE
    assert recorder.header.attention == ("adaptive" if is_sparse else "softmax")
    if not is_sparse:
        model.set_attn_implementation("eager")
    assert_recorded(model, recorder, sentences)


@pytest.mark.parametrize("name", ["marian", "llama", "bert", "t5"])
def test_zeros_are_left_out(name):
    recording = record(sparse(name), tokenizer(), SOURCE, TARGET if name in TRANSLATION else None)
    for sentence in recording.sentences[:2]:
        layers = [layer for kind in sentence.attention.values() for layer in kind]
        assert any(len(layer.value) < layer.visible.sum() * layer.shape[0] for layer in layers)


def test_the_given_model_is_left_alone():
    model = dense("marian")
    before = {name: id(x) for name, x in model.named_parameters()}
    kind, implementation = type(model), model.config._attn_implementation
    record(model, tokenizer(), SOURCE, TARGET)
    assert type(model) is kind
    assert model.config._attn_implementation == implementation
    assert {name: id(x) for name, x in model.named_parameters()} == before


def test_modules_that_stayed_dense_are_recorded_too():
    model = sparse("marian", modules="*encoder.layers.0*", alpha="fixed", init_alpha=2.0)
    recorder = Recorder(model, tokenizer())
    assert recorder.header.attention == "entmax"
    assert recorder.header.alpha["encoder"] == ((2.0,) * 4, (1.0,) * 4)
    assert_recorded(model, recorder, recorder.sentences(SOURCE[:2], TARGET[:2]))


def test_length_scales_are_recorded():
    model = sparse("llama", length_scale="adaptive")
    recorder = Recorder(model, tokenizer())
    assert_recorded(model, recorder, recorder.sentences(SOURCE))


def test_the_header_tells_modules_and_alpha():
    model = sparse("marian", alpha="fixed", init_alpha=1.5)
    header = Recorder(model, tokenizer(), name="run").header
    assert (header.name, header.kind) == ("run", "translation")
    assert header.kinds == ("encoder", "decoder", "context")
    assert header.size("encoder") == (2, 4)
    assert header.size("context") == (3, 4)
    assert header.modules["encoder"][1] == "model.encoder.layers.1.self_attn"
    assert header.modules["context"][0] == "model.decoder.layers.0.encoder_attn"
    assert set(sum(header.alpha["decoder"], ())) == {1.5}


def test_layers_that_share_parameters_are_told_apart():
    header = Recorder(dense("albert"), tokenizer()).header
    assert header.size("encoder") == (2, 4)
    assert len(set(header.modules["encoder"])) == 1


def test_visible_keys_are_counted():
    recorder = Recorder(sparse("gemma3"), tokenizer())
    sentence = next(iter(recorder.sentences(SOURCE[1:2])))
    n = len(sentence.source)
    local, everything = sentence.attention["decoder"]
    assert everything.visible.tolist() == list(range(1, n + 1))
    assert local.visible.tolist() == [min(i, 5) for i in range(1, n + 1)]


def test_the_decoder_reads_from_its_start_token_on():
    recorder = Recorder(dense("marian"), tokenizer())
    sentence = next(iter(recorder.sentences(SOURCE[:1], TARGET[:1])))
    assert sentence.target.ids[0] == 0
    assert sentence.written.ids[-1] == 2
    assert sentence.target.ids[1:] == sentence.written.ids[:-1]


def test_only_the_largest_weights_are_kept_if_so_wished():
    model = dense("llama")
    everything = record(model, tokenizer(), SOURCE).sentences[1].attention["decoder"][1]
    sentence = record(model, tokenizer(), SOURCE, top=3).sentences[1]
    some = sentence.attention["decoder"][1]
    assert sentence.top == 3
    expected = everything.dense()
    cut = np.sort(expected, axis=-1)[..., -3][..., None]
    np.testing.assert_array_equal(some.dense(), np.where(expected >= cut, expected, 0))
    np.testing.assert_array_equal(some.used, everything.used)


def test_long_calls_are_computed_in_parts(monkeypatch):
    whole = [record(sparse(name), tokenizer(), SOURCE) for name in ("llama", "bert", "gemma2")]
    monkeypatch.setattr("adasparse.analysis.recording.attention_weights.BLOCK_SIZE", 50)
    for name, expected in zip(("llama", "bert", "gemma2"), whole, strict=True):
        parts = record(sparse(name), tokenizer(), SOURCE)
        for a, b in zip(parts.sentences, expected.sentences, strict=True):
            for kind in a.attention:
                for x, y in zip(a.attention[kind], b.attention[kind], strict=True):
                    np.testing.assert_allclose(x.dense(), y.dense(), atol=1e-6)
                    np.testing.assert_array_equal(x.visible, y.visible)
    monkeypatch.setattr("adasparse.analysis.recording.attention_weights.BLOCK_SIZE", 50)
    recorder = Recorder(sparse("t5"), tokenizer())
    assert_recorded(recorder.model, recorder, recorder.sentences(SOURCE[:2], TARGET[:2]))


def generations():
    """Every model with beams and entmax, one of each kind with all; the others are slow."""
    for name in (*TRANSLATION, *DECODERS):
        for beams, is_sparse in itertools.product((1, 3), (False, True)):
            is_usual = (beams == 3 and is_sparse) or name in (TRANSLATION[0], DECODERS[0])
            kind = "entmax" if is_sparse else "softmax"
            marks = () if is_usual else pytest.mark.slow
            yield pytest.param(name, beams, is_sparse, marks=marks, id=f"{name}-{beams}-{kind}")


@pytest.mark.parametrize(("name", "beams", "is_sparse"), list(generations()))
def test_generation_is_recorded_along_the_chosen_beam(name, beams, is_sparse):
    """The steps, put together, are the weights of a single pass over the text written."""
    model = sparse(name) if is_sparse else dense(name)
    options = {"num_beams": beams, "max_new_tokens": 9}
    if beams > 1:
        options["length_penalty"] = -1.0
    recording = record_generated(model, tokenizer(), SOURCE[:4], generation=options)
    recorder = Recorder(model, tokenizer())
    if not is_sparse:
        model.set_attn_implementation("eager")
    lengths = {len(sentence.written or sentence.source) for sentence in recording.sentences}
    assert lengths != {9} or name not in DECODERS
    assert_recorded(model, recorder, recording.sentences)


def test_what_is_generated_is_what_the_model_generates():
    model = dense("marian")
    ids = tokenizer()(SOURCE[:1], return_tensors="pt")["input_ids"]
    expected = model.generate(ids, num_beams=2, max_new_tokens=7)[0]
    recording = record_generated(
        model, tokenizer(), SOURCE[:1], generation={"num_beams": 2, "max_new_tokens": 7}
    )
    sentence = recording.sentences[0]
    assert [*sentence.target.ids, sentence.written.ids[-1]] == expected.tolist()
    assert sentence.target_text == tokenizer().decode(expected, skip_special_tokens=True)


def test_mistakes_are_named():
    model = dense("marian")
    with pytest.raises(ValueError, match=r"with targets.*got no targets"):
        record(model, tokenizer(), SOURCE)
    with pytest.raises(ValueError, match="'encoder'"):
        record(dense("bert"), tokenizer(), SOURCE, TARGET)
    with pytest.raises(ValueError, match="got an encoder"):
        record_generated(dense("bert"), tokenizer(), SOURCE)
    with pytest.raises(ValueError, match="num_return_sequences=2"):
        record_generated(model, tokenizer(), SOURCE, generation={"num_return_sequences": 2})
    with pytest.raises(ValueError, match="at least 1; got 0"):
        Recorder(model, tokenizer(), top=0)
    with pytest.raises(TypeError, match="got Linear"):
        Recorder(torch.nn.Linear(1, 1), tokenizer())
    with pytest.raises(ValueError, match="shorter"):
        record(model, tokenizer(), SOURCE, TARGET[:2])


LONG_CONTEXT = [
    ("asentmax", "nape"),
    ("adaptive", "alibi"),
    ("softmax", "rope"),
    ("adaptive-temperature", "nope"),
    ("ssmax", "nape"),
]


@pytest.mark.parametrize(("attention", "positions"), LONG_CONTEXT)
def test_long_context_models_are_recorded(attention, positions, monkeypatch):
    torch.manual_seed(0)
    config = LongContextConfig(
        attention=attention,
        positions=positions,
        vocab_size=200,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        eos_token_id=2,
    )
    model = LongContextForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.xavier_normal_(parameter, gain=2.0)
    recorder = Recorder(model, tokenizer())
    assert (recorder.header.kind, recorder.header.attention) == ("decoder", attention)
    assert recorder.header.size("decoder") == (2, 4)
    assert_recorded(model, recorder, recorder.sentences(SOURCE))
    options = {"num_beams": 2, "max_new_tokens": 5}
    recording = record_generated(model, tokenizer(), SOURCE[:3], generation=options)
    assert_recorded(model, recorder, recording.sentences)
    monkeypatch.setattr("adasparse.analysis.recording.attention_weights.BLOCK_SIZE", 50)
    assert_recorded(model, recorder, recorder.sentences(SOURCE[:2]))
