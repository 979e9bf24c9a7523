"""Translations: their order, their scores, their limits."""

import functools

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from adasparse.translation.data import PreparedData
from adasparse.translation.decode import EMPTY, too_long, translate
from adasparse.translation.model import PairCollator
from adasparse.translation.runs import load_run
from support.small_runs import small_data, small_run

SENTENCES = ["zwei drei", "eins", "neun acht sieben sechs fünf vier", "drei", "zehn zehn zwei"]


@functools.cache
def loaded(attention="adaptive"):
    """A model that has learned little, and whose choices are wide apart nevertheless."""
    model, tokenizer = load_run(small_run(attention))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if x.ndim > 1 and x.requires_grad and "positions" not in name:
                x.add_(torch.randn(x.shape, generator=generator), alpha=0.5)
        model.final_logits_bias[0, tokenizer.eos_token_id] += 3  # some end, some do not
    return model, tokenizer


def texts(found):
    return [[x.text for x in translations] for translations in found]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("attention", ["softmax", "adaptive"])
def test_neither_batches_nor_order_make_a_difference(beam, attention):
    model, tokenizer = loaded(attention)
    alone = [translate(model, tokenizer, [x], beam=beam)[0] for x in SENTENCES]
    for batch_tokens in (30, 4000):
        found = translate(model, tokenizer, SENTENCES, beam=beam, batch_tokens=batch_tokens)
        assert texts(found) == texts(alone)
        for one, two in zip(found, alone, strict=True):
            assert abs(one[0].score - two[0].score) < 1e-4
    backward = translate(model, tokenizer, SENTENCES[::-1], beam=beam)
    assert texts(backward)[::-1] == texts(alone)
    assert len({x[0].text for x in alone}) > 1


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_scores_are_the_models_own_log_probabilities(beam, length_penalty):
    model, tokenizer = loaded()
    found = translate(
        model, tokenizer, SENTENCES, beam=beam, n_best=beam, length_penalty=length_penalty
    )
    for sentence, translations in zip(SENTENCES, found, strict=True):
        for x in translations:
            ids = tokenizer(sentence).input_ids
            inputs = PairCollator(0)([{"input_ids": ids, "labels": list(x.ids)}])
            labels = inputs.pop("labels")
            with torch.no_grad():
                chances = model(**inputs).logits.double().log_softmax(-1)
            exact = chances.gather(-1, labels.unsqueeze(-1)).sum() / len(x.ids) ** length_penalty
            assert abs(x.score - exact.item()) < 1e-4
            assert x.ids[-1] == tokenizer.eos_token_id
            assert tokenizer.decode(x.ids, skip_special_tokens=True) == x.text


def test_the_best_comes_first_and_all_differ():
    model, tokenizer = loaded()
    found = translate(model, tokenizer, SENTENCES, beam=4, n_best=3)
    for translations in found:
        scores = [x.score for x in translations]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert len({x.ids for x in translations}) == 3
    best = translate(model, tokenizer, SENTENCES, beam=4)
    assert texts(best) == [
        x[:1] for x in texts(translate(model, tokenizer, SENTENCES, beam=4, n_best=3))
    ]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_is_that_of_transformers(beam):
    model, tokenizer = loaded()
    ended = 0
    for sentence in SENTENCES:
        inputs = tokenizer([sentence], return_tensors="pt")
        limit = 2 * inputs.input_ids.shape[1] + 10
        found = model.generate(**inputs, num_beams=beam, max_new_tokens=limit, max_length=None)
        ours = translate(model, tokenizer, [sentence], beam=beam)[0][0]
        theirs = found[0, 1:].tolist()
        if tokenizer.eos_token_id in theirs[: limit - 1]:
            ended += 1
            assert list(ours.ids) == theirs
        elif beam == 1:  # it is cut at the limit, where ours ends
            assert list(ours.ids[:-1]) == theirs[: limit - 1]
    assert ended > 0


def test_each_sentence_has_a_limit_of_its_own():
    model, tokenizer = loaded()
    for max_ratio in (0.0, 1.0):
        found = translate(model, tokenizer, SENTENCES, beam=2, max_ratio=max_ratio)
        for sentence, (best,) in zip(SENTENCES, found, strict=True):
            assert len(best.ids) <= int(max_ratio * len(tokenizer(sentence).input_ids)) + 10


@pytest.mark.parametrize("blank", ["", " ", "\t \u3000", "\x00", "\ufeff", "\x85"], ids=repr)
def test_blank_sentences_stay_empty(blank):
    model, tokenizer = loaded()
    found = translate(model, tokenizer, ["eins", blank, "zwei", blank], beam=2, n_best=2)
    assert found[1] == found[3] == [EMPTY]
    assert texts(found)[::2] == texts(
        translate(model, tokenizer, ["eins", "zwei"], beam=2, n_best=2)
    )


def test_repeated_sentences_are_translated_once(monkeypatch):
    """A million empty lines used to take a minute."""
    model, tokenizer = loaded()
    rows, done = [], []
    generate = model.generate

    def counting(**inputs):
        rows.append(len(inputs["input_ids"]))
        return generate(**inputs)

    monkeypatch.setattr(model, "generate", counting)
    alone = translate(model, tokenizer, SENTENCES)
    rows.clear()
    order = [2, 0, 0, 4, 2, 1, 3, 0]
    given = [text for i in order for text in ("", SENTENCES[i], " ")]
    found = translate(model, tokenizer, given, on_done=done.append)
    assert texts(found) == texts([x for i in order for x in ([EMPTY], alone[i], [EMPTY])])
    assert sum(rows) == len(SENTENCES)
    assert sum(done) == len(order)


def test_nothing_becomes_nothing():
    model, tokenizer = loaded()
    assert translate(model, tokenizer, []) == []
    assert translate(model, tokenizer, [""]) == [[EMPTY]]
    assert too_long([], model, tokenizer) == {}


def test_sentences_are_normalized_as_the_training_data_were():
    model, tokenizer = loaded()
    given = ["fünf  fünf ", "fu\u0308nf\u00a0fünf", "\ufefffünf\x07 fünf", "fünf\u2028fünf"]
    assert len({x[0].text for x in translate(model, tokenizer, ["fünf fünf", *given])}) == 1
    data = PreparedData.open(small_data())
    encoded = [data.dev[i]["input_ids"] for i in range(len(data.dev))]
    assert tokenizer(data.dev_source).input_ids == encoded


def test_long_sentences_are_refused_by_number():
    model, tokenizer = loaded()
    long = "zwei " * 64
    length = len(tokenizer(long).input_ids)
    assert too_long(["eins", long, "eins", long], model, tokenizer) == {1: length, 3: length}
    with pytest.raises(ValueError, match=f"may have 64 tokens; number 2 has {length}"):
        translate(model, tokenizer, ["eins", long])


def test_the_longest_sentence_that_fits_is_translated():
    model, tokenizer = loaded()
    words = next(n for n in range(64, 0, -1) if len(tokenizer("zwei " * n).input_ids) <= 64)
    assert len(tokenizer("zwei " * words).input_ids) > 60
    (best,) = translate(model, tokenizer, ["zwei " * words], beam=2)[0]
    assert len(best.ids) <= 63


def test_n_best_needs_as_many_beams():
    model, tokenizer = loaded()
    with pytest.raises(ValueError, match="n_best must be at least 1 and at most beam=2; got 3"):
        translate(model, tokenizer, ["eins"], beam=2, n_best=3)


def test_progress_is_told_and_the_mode_stays():
    model, tokenizer = loaded()
    counts = []
    model.train()
    translate(model, tokenizer, [*SENTENCES, ""], batch_tokens=8, beam=1, on_done=counts.append)
    assert model.training
    model.eval()
    assert sum(counts) == len(SENTENCES)
    assert len(counts) > 1


def test_a_large_vocabulary_makes_small_batches(monkeypatch):
    """All the scores of a search together stay below a limit."""
    model, tokenizer = loaded()
    counts, expected = [], texts(translate(model, tokenizer, SENTENCES, beam=2))
    monkeypatch.setattr("adasparse.translation.decode._MOST_NUMBERS", 2 * 60 * len(tokenizer))
    assert texts(translate(model, tokenizer, SENTENCES, beam=2, on_done=counts.append)) == expected
    assert max(counts) <= 60 // 14
    assert len(counts) > 1


def test_other_encoder_decoders_translate_too():
    """Whatever transformers has, not only what was trained here."""
    _, tokenizer = loaded()
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2,
                 decoder_start_token_id=0, eos_token_id=1, max_position_embeddings=64)
    )  # fmt: skip
    found = translate(model, tokenizer, ["eins", "", "zwei drei"], beam=2, n_best=2)
    assert [len(x) for x in found] == [2, 1, 2]
