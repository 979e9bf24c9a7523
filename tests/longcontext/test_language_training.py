"""Language models: tokens, training, perplexity by position and needles."""

import gzip
import json
import math
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from adasparse.longcontext.generate import continue_text
from adasparse.longcontext.language_eval import evaluate_reading
from adasparse.longcontext.lm import LanguageJob, collate_blocks, train_language
from adasparse.longcontext.needle import find_needles, hide_needle
from adasparse.longcontext.perplexity import perplexity_by_length, token_losses
from adasparse.longcontext.runs import load_language_run
from adasparse.longcontext.sweep import read_evaluations
from adasparse.longcontext.task_eval import evaluate_run
from adasparse.longcontext.text import encode, open_tokens, read_text, train_tokenizer
from adasparse.training import dry_run, read_log
from support.small_language import (
    held_out,
    language_file,
    language_recipe,
    language_run,
    novel,
    text_file,
)
from support.small_models import model
from support.small_runs import command, run
from support.small_tasks import task_run

TOKENIZER = train_tokenizer(novel(300, seed=5), vocab_size=300)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_text_is_read_and_given_back(text):
    whole = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(whole) == text
    assert encode(TOKENIZER, text).tolist() == whole


def test_pieces_of_a_text_have_the_tokens_of_the_whole():
    text = novel(400, seed=3) + "\n\n \n\nEnd\n<eos>"
    assert encode(TOKENIZER, text).tolist() == TOKENIZER(text)["input_ids"]
    assert TOKENIZER.eos_token_id not in encode(TOKENIZER, text)


def test_two_digits_of_a_number_are_a_token():
    tokens = TOKENIZER.backend_tokenizer.pre_tokenizer.pre_tokenize_str("of 1812, 40721.5")
    assert [x for x, _ in tokens] == ["of", "Ġ18", "12", ",", "Ġ40", "72", "1", ".", "5"]


def test_the_first_updates_see_shorter_texts(tmp_path, monkeypatch):
    shapes = []

    def note(blocks):
        found = collate_blocks(blocks)
        shapes.append(tuple(found["input_ids"].shape))
        return found

    monkeypatch.setattr("adasparse.longcontext.lm.collate_blocks", note)
    recipe = language_recipe(tmp_path / "run", first_context=8, first_context_steps=3, max_steps=5)
    train_language(recipe)
    # All are made as long as any; those of the first updates are cut.
    assert Counter(width for _, width in shapes) == {16: 5, 8: 3}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"first_context": 7, "first_context_steps": 2},
            "at least 2 and divide context, .*; got 7",
        ),
        ({"first_context": 8}, "must be given together; got 8 and 0"),
        ({"first_context_steps": 8}, "must be given together; got None and 8"),
    ],
)
def test_a_first_context_is_checked(tmp_path, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        language_recipe(tmp_path, **changes)


def test_a_word_of_a_million_letters_is_learned_from_at_once():
    """It used to take hours, which Ctrl-C did not end."""
    text = "x" * 1_000_000 + "\n" * 100_000
    tokenizer = train_tokenizer(text, vocab_size=300)
    assert tokenizer.decode(encode(tokenizer, text).tolist()) == text


def test_texts_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\xfe")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n" * 99)[:-9])
    for name, message in (
        ("a.txt", "line 2 is not, at its byte 1"),
        ("a.gz", "damaged or cut off"),
    ):
        with pytest.raises(ValueError, match=message):
            read_text(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_text(tmp_path / "b.txt")


def test_the_text_is_kept_as_tokens():
    run = language_run()
    _, tokenizer, recipe = load_language_run(run)
    text = read_text(text_file())
    cut = round(len(text) * 0.9)
    for name, part in (("train", text[:cut]), ("dev", text[cut:])):
        tokens = open_tokens(run / "tokens", name)
        assert isinstance(tokens, np.memmap)
        assert tokenizer.decode(tokens.tolist()) == part
    assert recipe.context == 16


def test_the_first_token_of_a_block_is_not_predicted():
    inputs = collate_blocks([torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10])])
    assert inputs["labels"].tolist() == [[-100, 6, 7], [-100, 9, 10]]


def test_a_run_loads_and_tells_its_perplexity():
    run = language_run()
    made = AutoModelForCausalLM.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert made.config.vocab_size == len(tokenizer)
    results = json.loads((run / "results.json").read_text())
    scores = results["candidates"][results["model"]]
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    dev = torch.from_numpy(open_tokens(run / "tokens", "dev")[:64].astype(np.int64)).view(4, 16)
    logits = made(dev).logits[:, :-1].double()
    expected = cross_entropy(logits.flatten(0, 1), dev[:, 1:].flatten()).item()
    assert scores["loss"] == pytest.approx(expected, rel=1e-5)
    losses = [x["loss"] for x in read_log(run / "log.jsonl") if "loss" in x]
    assert losses[-1] < losses[0]
    assert "| perplexity |" in (run / "README.md").read_text()


def test_training_goes_on_with_the_same_text_only(tmp_path):
    recipe = language_recipe(tmp_path / "run", max_steps=3, schedule="inverse-sqrt")
    train_language(recipe)
    whole = language_recipe(tmp_path / "run", schedule="inverse-sqrt")
    train_language(whole, resume=True)
    again = language_recipe(tmp_path / "again", schedule="inverse-sqrt")
    train_language(again)
    name = "checkpoints/checkpoint-6/model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    with pytest.raises(ValueError, match="content of data was"):
        train_language(
            language_recipe(tmp_path / "run", data=str(held_out()), schedule="inverse-sqrt"),
            resume=True,
        )


def test_a_text_that_is_too_short_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"dev part of .* at least 900 tokens.* it has"):
        train_language(language_recipe(tmp_path / "run", context=900))
    assert not (tmp_path / "run/tokens").exists()
    with pytest.raises(ValueError, match="data must be a text file"):
        dry_run(LanguageJob(language_recipe(tmp_path / "run", data="nothing.txt")))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"vocab_size": 256}, "vocab_size must be at least 257; got 256"),
        ({"context": 1}, "context must be at least 2; got 1"),
        ({"dev_share": 0.0}, r"dev_share must be between 0 and 1; got 0\.0"),
    ],
    ids=str,
)
def test_recipe_refuses(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        language_recipe("x", **changes)


def test_perplexity_by_position_is_that_of_the_logits():
    made = model().double()
    tokens = (3 + np.arange(70) * 7 % 10).astype(np.uint32)
    found = perplexity_by_length(made, tokens, [22, 8], train_length=5, max_tokens=50)
    assert [(x["length"], x["windows"]) for x in found["lengths"]] == [(8, 6), (22, 2)]
    windows = torch.from_numpy(tokens[:44].astype(np.int64)).view(2, 22)
    logits = made(windows).logits[:, :-1]
    losses = cross_entropy(logits.transpose(1, 2), windows[:, 1:], reduction="none").mean(0)
    entry = found["lengths"][1]
    assert entry["loss"] == pytest.approx(losses.mean().item(), rel=1e-6)
    spans = [(x["first"], x["end"]) for x in entry["buckets"]]
    assert spans == [(1, 5), (5, 10), (10, 20), (20, 22)]
    for (first, end), bucket in zip(spans, entry["buckets"], strict=True):
        expected = losses[first - 1 : end - 1].mean().item()
        assert bucket["perplexity"] == pytest.approx(math.exp(expected), rel=1e-6)


def test_logits_in_parts_are_those_of_the_whole(monkeypatch):
    made, tokens = model(), torch.arange(3, 13)[None]
    whole = token_losses(made, tokens)
    monkeypatch.setattr("adasparse.longcontext.perplexity._LOGITS", 4)
    torch.testing.assert_close(token_losses(made, tokens), whole)


def test_reading_stops_where_text_or_memory_ends():
    made, tokens = model(), np.full(40, 5, dtype=np.uint32)
    found = perplexity_by_length(made, tokens, [8, 41], train_length=8)
    assert len(found["lengths"]) == 1
    assert found["stopped"] == "length 41: the text has 40 tokens"
    found = perplexity_by_length(made, tokens, [8], train_length=8, memory_limit=1000)
    assert found["lengths"] == []
    assert "GiB of memory" in found["stopped"]


def test_a_needle_is_where_it_should_be_and_asked_for_in_the_end():
    text = encode(TOKENIZER, novel(400, seed=4))
    for depth in (0.0, 0.5, 1.0):
        window, asked = hide_needle(TOKENIZER, text, 200, depth=depth, seed="a")
        assert len(window) == 200
        key = TOKENIZER.decode(window[-asked:].tolist())
        words = TOKENIZER.decode(window.tolist())
        assert key.strip().isdecimal()
        sentence = words[words.rindex("\nThe secret") :]
        assert sentence.endswith(key)
        assert words.count(sentence) == 2
        before = len(encode(TOKENIZER, words[: words.index(sentence)]))
        room = 200 - 2 * len(encode(TOKENIZER, sentence)) - len(encode(TOKENIZER, ".\n"))
        assert abs(before - depth * room) <= 2
    assert len({hide_needle(TOKENIZER, text, 99, depth=0, seed=str(i))[0].tobytes()
                for i in range(5)}) == 5  # fmt: skip
    with pytest.raises(ValueError, match="for a needle and its question; got 9"):
        hide_needle(TOKENIZER, text, 9, depth=0.5, seed="a")


class Remembers(torch.nn.Module):
    """Finds most likely what came after the last time that the token was there."""

    def __init__(self, made):
        super().__init__()
        self.config, self.device = made.config, made.device

    def forward(self, tokens, use_cache, logits_to_keep):
        row = tokens[0].tolist()
        logits = torch.zeros(1, logits_to_keep, len(TOKENIZER))
        for i in range(logits_to_keep):
            end = len(row) - logits_to_keep + 1 + i
            place = max(j for j in range(3, end - 1) if row[j - 3 : j] == row[end - 3 : end])
            logits[0, i, row[place]] = 9.0
        return type("Output", (), {"logits": logits})


def test_needles_are_found_by_who_remembers_them():
    text = encode(TOKENIZER, novel(400, seed=4))
    found = find_needles(
        Remembers(model()), TOKENIZER, text, [9, 150, 10**6], depths=[0, 1], trials=3
    )
    assert [(x["length"], x["depth"], x["exact_match"]) for x in found["scores"]] == [
        (150, 0, 1.0),
        (150, 1, 1.0),
    ]
    assert all(0.5 < x["probability"] <= 1 for x in found["scores"])
    assert "the text has" in found["stopped"]
    made = model(vocab_size=len(TOKENIZER))
    found = find_needles(made, TOKENIZER, text, [150], depths=[0.5], trials=3)
    assert found["scores"][0]["exact_match"] == 0
    assert found["scores"][0]["probability"] < 0.1


def test_an_evaluation_stays_with_its_run():
    found = evaluate_reading(language_run(), held_out(), needles=0, max_tokens=300)
    assert found == json.loads((language_run() / "eval.json").read_text())
    assert [x["length"] for x in found["perplexity"]["lengths"]] == [16, 32, 64, 128]
    assert found["needles"] is None
    with pytest.raises(ValueError, match=r"one of 'adasparse lm train'.* of another kind"):
        evaluate_reading(task_run(), held_out())
    with pytest.raises(ValueError, match=r"one of 'adasparse tasks train'.* of another kind"):
        evaluate_run(language_run(), [5])
    with pytest.raises(ValueError, match=r"there is no eval\.json of any"):
        read_evaluations(language_run())


def test_a_continuation_begins_with_the_prompt_and_depends_on_the_seed():
    texts = [
        continue_text(language_run(), "the sea", max_tokens=5, seed=seed) for seed in (1, 1, 2)
    ]
    assert all(text.startswith("the sea") for text in texts)
    assert texts[0] == texts[1] != texts[2]
    with pytest.raises(ValueError, match="must have a character"):
        continue_text(language_run(), "")


def test_a_training_killed_at_its_very_end_is_finished_alike(tmp_path, monkeypatch):
    """Configurations used to lack the padding token, which a Trainer sets when it starts."""
    whole = train_language(language_recipe(tmp_path / "whole"))

    def killed(*args, **kwargs):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["adasparse.training.fit"], "finish_run", killed)
        with pytest.raises(RuntimeError, match="killed"):
            train_language(language_recipe(tmp_path / "run"))
    run = train_language(language_recipe(tmp_path / "run"), resume=True)
    for name in (
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
        *("model.safetensors", "results.json", "README.md"),
    ):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.slow
def test_two_processes_are_two_batches_of_one(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    train_language(language_recipe(one, accumulate=2))
    start = command("lm", "train", language_file(), f"data={text_file()}", f"output={two}")[1:]
    done = run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *start])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("perplexity") == 1
    expected = load_file(one / "model.safetensors")
    for name, x in load_file(two / "model.safetensors").items():
        torch.testing.assert_close(x, expected[name], rtol=1e-4, atol=1e-5)
