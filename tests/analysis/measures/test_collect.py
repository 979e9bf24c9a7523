"""A run is measured sentence by sentence, and how sure the values are is told."""

import numpy as np
import pytest

from adasparse.analysis import Recorder, Recording, record
from adasparse.analysis.measures import definitions
from adasparse.analysis.measures.collect import MeasureCollector, measure_heads
from adasparse.analysis.measures.registry import MEASURES
from adasparse.analysis.measures.results import bootstrap
from adasparse.analysis.tokens.annotations import count_tokens
from adasparse.analysis.tokens.interrogatives import interrogatives_of
from support.sample_models import SOURCE, TARGET, dense, sparse, tokenizer


@pytest.fixture(scope="module")
def recording():
    return record(sparse("marian"), tokenizer(), SOURCE, TARGET)


@pytest.fixture(scope="module")
def measures(recording):
    return measure_heads(recording, resamples=200)


def test_values_are_those_of_the_measures(recording, measures):
    for kind in ("encoder", "decoder", "context"):
        for layer in range(recording.header.size(kind)[0]):
            layers = [sentence.attention[kind][layer] for sentence in recording.sentences]
            density = definitions.density(layers).numpy()
            np.testing.assert_allclose(measures.values(kind, "density")[layer], density)
            diversity = definitions.diversity(layers).numpy()
            np.testing.assert_allclose(measures.values(kind, "diversity")[layer], diversity)
    layers = [sentence.attention["encoder"][1] for sentence in recording.sentences]
    special = [np.array(sentence.source.is_special) for sentence in recording.sentences]
    words = [np.array(sentence.source.words) for sentence in recording.sentences]
    found = measures.values("encoder", "special")[1]
    np.testing.assert_allclose(found, definitions.key_weight(layers, special).numpy())
    found = measures.values("encoder", "merging")[1]
    np.testing.assert_allclose(found, definitions.merging(layers, words).numpy())
    found = measures.values("encoder", "previous2")[1]
    np.testing.assert_allclose(found, definitions.offset_weight(layers, offset=-2).numpy())


def test_alpha_is_that_of_the_model(recording, measures):
    assert measures.values("context", "alpha").tolist() == [
        list(heads) for heads in recording.header.alpha["context"]
    ]


def test_measures_are_not_defined_where_they_mean_nothing(measures):
    assert np.isnan(measures.values("context", "previous")).all()
    assert np.isnan(measures.values("decoder", "next")).all()
    assert np.isnan(measures.values("decoder", "interrogation")).all()
    for info in MEASURES:
        for kind in info.kinds:
            assert np.isfinite(measures.values(kind, info.key)).all(), (kind, info.key)


def test_questions_are_found(measures):
    """Two of the sentences ask; one more has such a word and ends in a full stop."""
    assert measures.counted("encoder", "interrogation") == 2
    assert measures.counted("encoder", "density") == len(SOURCE)


def test_a_layer_of_fewer_heads_has_no_value_for_the_others():
    model = dense("llama", num_hidden_layers=1)
    header = Recorder(model, tokenizer()).header
    sentences = list(Recorder(model, tokenizer()).sentences(SOURCE))
    layer = sentences[0].attention["decoder"][0]
    sentences = [
        type(x)(
            **{
                **vars(x),
                "attention": {
                    "decoder": (*x.attention["decoder"], x.attention["decoder"][0].of_head(0))
                },
            }
        )
        for x in sentences
    ]
    header = type(header)(
        **{
            **vars(header),
            "modules": {"decoder": ("a", "b")},
            "alpha": {"decoder": (header.alpha["decoder"][0], (1.0,))},
        }
    )
    found = measure_heads(Recording(header=header, sentences=sentences), resamples=10)
    assert layer.shape[0] == 4
    assert np.isfinite(found.values("decoder", "density")).tolist() == [
        [True] * 4,
        [True] + [False] * 3,
    ]
    assert np.isfinite(found.values("decoder", "alpha")).tolist() == [
        [True] * 4,
        [True] + [False] * 3,
    ]


def test_sentences_may_come_one_at_a_time(recording, measures):
    counts = {
        "source": count_tokens(x.source.ids for x in recording.sentences),
        "target": count_tokens(x.target.ids for x in recording.sentences),
    }
    words = interrogatives_of({"source": "de", "target": "en"})
    collector = MeasureCollector(recording.header, counts=counts, interrogatives=words)
    for sentence in recording.sentences:
        collector.add(sentence)
    again = collector.result(resamples=200)
    for (kind, key), sums in measures.sums.items():
        np.testing.assert_array_equal(again.sums[kind, key], sums)
    np.testing.assert_array_equal(
        again.intervals("encoder", "entropy"), measures.intervals("encoder", "entropy")
    )


def test_bootstrap_is_that_of_drawing_sentences_one_by_one():
    generator = np.random.default_rng(3)
    total, count = generator.random((7, 2)), generator.integers(1, 9, (7, 2)).astype(float)
    draws = generator.multinomial(7, np.full(7, 1 / 7), 300)
    expected = []
    for draw in draws:
        chosen = [i for i, times in enumerate(draw) for _ in range(times)]
        assert len(chosen) == 7
        expected.append(
            [sum(total[i, j] for i in chosen) / sum(count[i, j] for i in chosen) for j in (0, 1)]
        )
    low, high = np.quantile(np.array(expected), [0.05, 0.95], axis=0)
    actual = bootstrap(total, count, draws=draws, level=0.9)
    np.testing.assert_allclose(actual, np.stack([low, high], -1), atol=1e-12)


def test_intervals_hold_the_value_and_depend_on_the_seed_alone(recording, measures):
    values = measures.values("encoder", "entropy")
    low, high = np.moveaxis(measures.intervals("encoder", "entropy"), -1, 0)
    assert ((low < values) & (values < high)).all()
    same = measure_heads(recording, resamples=200).intervals("encoder", "entropy")
    other = measure_heads(recording, resamples=200, seed=1).intervals("encoder", "entropy")
    assert np.array_equal(np.stack([low, high], -1), same)
    assert not np.array_equal(same, other)
    assert np.isnan(measures.intervals("encoder", "alpha")).all()


def test_one_sentence_has_no_interval():
    recording = record(sparse("bert"), tokenizer(), SOURCE[:1])
    measures = measure_heads(recording, resamples=20)
    assert np.isfinite(measures.values("encoder", "density")).all()
    assert np.isnan(measures.intervals("encoder", "density")).all()


def test_intervals_are_as_wide_as_they_should_be():
    """The value of a large set lies in 95% of the intervals of small ones, more or less."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        total = generator.random((60, 1)) ** 2
        draws = generator.multinomial(60, np.full(60, 1 / 60), 400)
        low, high = bootstrap(total, np.ones((60, 1)), draws=draws)[0]
        hits += low < 1 / 3 < high
    assert 175 <= hits <= 199


def test_extremes_are_the_least_and_the_most_sparse(measures):
    density = measures.by_sentence("encoder", "density")[:, 1, 2]
    least, most = measures.extremes("encoder", 1, 2)
    assert density[least] == density.max()
    assert density[most] == density.min()
