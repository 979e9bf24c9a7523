"""Metrics and the ladder of lengths."""

import pytest
import torch

from adasparse.longcontext import (
    TASKS,
    LongContextConfig,
    LongContextForCausalLM,
    count_correct,
    evaluate_lengths,
    wilson_interval,
)
from adasparse.longcontext.memory import available_memory, forward_bytes
from adasparse.longcontext.tasks import EOS, SEP, Copy, FlipFlop


def small(task, attention="softmax", positions="nape", **sizes):
    torch.manual_seed(0)
    config = LongContextConfig(
        attention=attention,
        positions=positions,
        vocab_size=task.vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=EOS,
        **sizes,
    )
    return LongContextForCausalLM(config)


def train(model, task, length, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model.train()
    for step in range(steps):
        batch = task.batch(1, 32, length, first=32 * step)
        optimizer.zero_grad()
        model(**batch.model_inputs()).loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def half_trained():
    """A model that gets some examples right and others wrong."""
    task = Copy(num_symbols=2)
    return task, train(small(task, "asentmax"), task, 3, 40)


@pytest.mark.parametrize("is_trained", [False, True])
def test_exact_match_is_that_of_greedy_decoding(half_trained, is_trained):
    task, model = half_trained
    if not is_trained:
        model = small(task).eval()
    batch = task.batch(9, 40, 3)
    correct = count_correct(model, batch)
    prompt = batch.input_ids[:, : batch.input_ids[0].tolist().index(SEP) + 1]
    decoded = model.generate(prompt, max_new_tokens=4, do_sample=False)
    target = batch.input_ids[:, prompt.shape[1] :]
    width = min(decoded.shape[1] - prompt.shape[1], 4)
    is_same = (decoded[:, prompt.shape[1] :][:, :width] == target[:, :width]).all(1) & (width == 4)
    assert torch.equal(correct.exact, is_same)
    assert correct.labels.tolist() == [4] * 40
    if is_trained:
        assert 0 < correct.exact.sum() < 40


def test_labels_of_every_token_and_padding_are_counted():
    for name in ("local-count", "2back", "mqmtar"):
        task = TASKS[name]
        model = small(task, "entmax").eval()
        batch = task.batch(0, 6, (10, 30), padding_side="left")
        correct = count_correct(model, batch)
        logits = model(batch.input_ids, attention_mask=batch.attention_mask).logits
        is_asked = batch.labels[:, 1:] != -100
        is_right = (logits[:, :-1].argmax(-1) == batch.labels[:, 1:]) & is_asked
        assert torch.equal(correct.tokens, is_right.sum(1))
        assert torch.equal(correct.labels, is_asked.sum(1))


def test_a_ladder_of_lengths(half_trained):
    task, model = half_trained
    model.train()
    seen = []
    ladder = evaluate_lengths(
        model, task, [6, 3, 3], examples=50, seed=9, tokens_per_batch=64, on_score=seen.append
    )
    assert model.training
    model.eval()
    assert [x.length for x in ladder.scores] == [3, 6]
    assert tuple(seen) == ladder.scores and ladder.stopped is None and ladder.task == "copy"
    first = ladder.scores[0]
    correct = count_correct(model, task.batch(9, 50, 3))
    assert first.exact_match == correct.exact.double().mean().item()
    assert first.token_accuracy == correct.tokens.sum().item() / correct.labels.sum().item()
    assert (first.exact_low, first.exact_high) == wilson_interval(int(correct.exact.sum()), 50)
    assert first.examples == 50


def test_a_ladder_stops_where_memory_would_end():
    task = FlipFlop()
    model = small(task)
    limit = forward_bytes(model.config, 3000)
    ladder = evaluate_lengths(model, task, [10, 1000, 10**5], examples=2, memory_limit=limit)
    assert [x.length for x in ladder.scores] == [10, 1000]
    assert ladder.stopped.startswith("length 100000: a pass takes about 0.")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_ladder_stops_where_memory_ends(monkeypatch, error):
    task = FlipFlop()
    model = small(task)
    whole = model.forward

    def forward(input_ids, **options):
        if input_ids.shape[1] > 100:
            raise error
        return whole(input_ids, **options)

    monkeypatch.setattr(model, "forward", forward)
    ladder = evaluate_lengths(model, task, [10, 200], examples=2)
    assert [x.length for x in ladder.scores] == [10]
    assert ladder.stopped.startswith("length 200: ")


def test_other_errors_are_not_hidden():
    task, model = FlipFlop(), small(Copy())
    model.model.embed_tokens = torch.nn.Embedding(9, 16)
    with pytest.raises(RuntimeError):
        evaluate_lengths(model, task, [10], examples=1)
    with pytest.raises(ValueError, match=r"got \[\] and 1"):
        evaluate_lengths(model, task, [], examples=1)


def test_memory_is_known_and_grows_with_tokens():
    assert available_memory() is None or available_memory() > 2**20
    config = LongContextConfig()
    one, two = (forward_bytes(config, n) for n in (10**5, 2 * 10**5))
    assert 0 < one < two < 2 * one


def test_wilson_solves_its_equation():
    z = 1.959963984540054
    for successes, trials in [(0, 10), (3, 10), (10, 10), (417, 1000)]:
        for end in wilson_interval(successes, trials):
            gap = abs(end - successes / trials)
            assert gap**2 == pytest.approx(z**2 * end * (1 - end) / trials, abs=1e-12)
    low, high = wilson_interval(5, 10, confidence=0.5)
    assert 0.35 < low < 0.5 < high < 0.65


def test_errors_quote_what_was_given():
    with pytest.raises(ValueError, match="got 3 and 2"):
        wilson_interval(3, 2)
    with pytest.raises(ValueError, match="got 0 and 0"):
        wilson_interval(0, 0)
    with pytest.raises(ValueError, match="got 1"):
        wilson_interval(1, 2, confidence=1)
