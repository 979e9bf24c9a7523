import json
import math
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, TrainerControl, TrainerState

from adasparse import sparsify
from adasparse.training import BestModel, TrainingLog, read_log
from adasparse.training import callbacks as callbacks_module
from adasparse.training.callbacks import SpeedMeter, StopRequest

ARGS = SimpleNamespace(world_size=1, device="cpu")


def state(step=0, **options):
    return TrainerState(global_step=step, max_steps=100, is_world_process_zero=True, **options)


def evaluate(best, values):
    """Feed scores one by one; return at which steps it saved, and at which it stopped."""
    saved, stopped, history = [], [], []
    for step, value in enumerate(values, start=1):
        control = TrainerControl()
        history.append({"step": step, "eval_bleu": value})
        best.on_evaluate(ARGS, state(step), control, metrics={"eval_bleu": value})
        saved += [step] * control.should_save
        stopped += [step] * control.should_training_stop
    return saved, stopped, history


@pytest.mark.parametrize(
    ("is_better_high", "patience", "values", "saved", "stopped"),
    [
        (True, 0, [1, 3, 2, 2, 2, 4], [1, 2, 6], []),
        (False, 0, [5, 3, 4, 3, 2], [1, 2, 5], []),
        (True, 2, [1, 3, 2, 4, 4, 4], [1, 2, 4, 6], [6]),
        (False, 1, [1, 1], [1, 2], [2]),
        (True, 2, [math.nan, 1, math.nan, 2], [2, 4], []),
        (False, 2, [math.nan, math.nan], [2], [2]),
    ],
)
def test_the_best_is_saved_and_patience_ends(is_better_high, patience, values, saved, stopped):
    best = BestModel("eval_bleu", is_better_high=is_better_high, patience=patience)
    assert evaluate(best, values)[:2] == (saved, stopped)
    assert best.is_over == bool(stopped)


@pytest.mark.parametrize("cut", range(7))
def test_replaying_a_history_is_like_having_been_there(cut):
    values = [1.0, 3.0, 2.0, math.nan, 3.0, 3.5]
    live, resumed = (BestModel("eval_bleu", is_better_high=True, patience=4) for _ in range(2))
    *_, history = evaluate(live, values[:cut])
    mixed = [entry for x in history for entry in ({"step": x["step"], "loss": 9.0}, x)]
    evaluate(resumed, [99.0])  # forgotten
    resumed.on_train_begin(ARGS, state(cut, log_history=mixed), TrainerControl())
    attributes = ("value", "step", "misses", "is_over")
    assert [getattr(live, x) for x in attributes] == [getattr(resumed, x) for x in attributes]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_saves_and_stops_after_the_step(number):
    messages, before = [], signal.getsignal(number)
    request, control = StopRequest(messages.append), TrainerControl()
    request.on_train_begin()
    try:
        request.on_step_end(ARGS, state(1), control)
        assert not control.should_training_stop
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # a launcher that passes on what all processes got
        request.on_step_end(ARGS, state(2), control)
        assert control.should_save
        assert control.should_training_stop
        assert len(messages) == 1
        assert "Stopping after this step" in messages[0]
    finally:
        request.restore()
    assert signal.getsignal(number) is before


def test_a_second_signal_stops_at_once(monkeypatch):
    monkeypatch.setattr(StopRequest, "same", 0.0)
    request = StopRequest()
    request.on_train_begin()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        request.restore()


def test_speed_leaves_out_evaluation_and_saving(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(callbacks_module.time, "perf_counter", lambda: clock.now)
    meter = SpeedMeter()

    def passes(seconds):
        clock.now += seconds

    passes(50)  # before the first step
    meter.on_step_begin()
    passes(1)
    meter.on_step_end()
    passes(100)
    meter.on_evaluate()
    passes(200)
    meter.on_save()
    passes(2)  # waiting for data
    meter.on_step_begin()
    passes(3)
    meter.on_step_end()
    meter.tokens = 120
    assert meter.drain() == 20
    assert (meter.tokens, meter.seconds) == (0, 0)


@pytest.fixture(scope="module")
def model():
    config = MarianConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=0,
        decoder_start_token_id=0, max_position_embeddings=16,
    )  # fmt: skip
    model = MarianMTModel(config)
    sparsify(model)
    return model


def write(log, step, logs, model=None):
    log.on_log(ARGS, state(step), TrainerControl(), logs=logs, model=model)


def test_the_log_has_a_line_of_json_for_each_interval(tmp_path, model):
    log = TrainingLog(tmp_path / "log.jsonl")
    log.on_train_begin(ARGS, state(), TrainerControl())
    write(log, 5, {"loss": 2.5, "tokens_per_second": 10.0}, model)
    write(log, 5, {"eval_loss": 2.0, "eval_bleu": 9.0}, model)
    write(log, 10, {"train_runtime": 1.0, "train_loss": 2.0}, model)
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == read_log(tmp_path / "log.jsonl")
    assert [x["step"] for x in lines] == [5, 5]
    assert lines[0]["loss"] == 2.5
    names = ["encoder.layers.0.self", "decoder.layers.0.self", "decoder.layers.0.encoder"]
    names = [f"model.{name}_attn" for name in names]
    assert lines[0]["alpha"] == {name: [1.5, 1.5] for name in names}
    assert (lines[1]["dev_loss"], lines[1]["dev_bleu"]) == (2.0, 9.0)
    assert "alpha" not in lines[1]
    assert all(abs(x["time"] - time.time()) < 60 for x in lines)


@pytest.mark.parametrize("torn", ["", '{"step": 12, "lo', "\0\0\0", "\xff"], ids=repr)
def test_a_resumed_log_is_cut_where_training_goes_on(tmp_path, torn):
    log = TrainingLog(tmp_path / "log.jsonl")
    for step in (3, 6, 9, 12):
        write(log, step, {"eval_bleu": 1.0})
    with open(log.path, "ab") as file:
        file.write(torn.encode("latin-1"))
    assert [x["step"] for x in read_log(log.path)] == [3, 6, 9, 12]
    log.on_train_begin(ARGS, state(8), TrainerControl())
    write(log, 9, {"eval_bleu": 2.0})
    assert [(x["step"], x["dev_bleu"]) for x in read_log(log.path)] == [(3, 1), (6, 1), (9, 2)]


def test_only_the_first_process_writes(tmp_path):
    log, other = TrainingLog(tmp_path / "log.jsonl"), state(3)
    other.is_world_process_zero = False
    log.on_train_begin(ARGS, other, TrainerControl())
    log.on_log(ARGS, other, TrainerControl(), logs={"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line", ["[]", "3", "null", "{}", '{"step": "3"}', "[" * 100_000], ids=lambda x: x[:12]
)
def test_a_damaged_line_ends_the_log(tmp_path, line):
    """It used to end in a traceback where the step was read."""
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    assert read_log(path) == [{"step": 1}]
    TrainingLog(path).on_train_begin(ARGS, state(2), TrainerControl())
    assert path.read_text() == '{"step": 1}\n'


def test_a_missing_log_is_empty(tmp_path):
    assert read_log(tmp_path / "log.jsonl") == []


def test_a_request_counts_for_all_processes(monkeypatch):
    """A signal that one of them got stops all after the same step."""
    sent = []

    def all_reduce(tensor):
        sent.append(tensor.item())
        tensor += 1.0  # another process was asked

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    request, control = StopRequest(), TrainerControl()
    request.on_step_end(SimpleNamespace(world_size=2, device="cpu"), state(1), control)
    assert sent == [0.0]
    assert control.should_training_stop
    assert request.is_asked
