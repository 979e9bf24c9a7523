import io
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from torch import nn
from transformers import TrainerControl, TrainerState

from adasparse.training import ProgressBar, alpha_picture
from adasparse.training import progress as progress_module

STATE = TrainerState(global_step=0, max_steps=100, is_world_process_zero=True)
LOGS = {"loss": 2.3456, "tokens_per_second": 12345.6}


@pytest.fixture(autouse=True)
def _alpha(monkeypatch):
    """Three attentions with two heads each, unless a model says how many."""

    def current_alpha(model):
        heads = getattr(model, "heads", 2)
        return {str(i): torch.linspace(1 + i / 4, 1.3 + i / 4, heads) for i in range(3)}

    monkeypatch.setattr(progress_module, "current_alpha", current_alpha)


def bar(**options):
    console = Console(file=io.StringIO(), highlight=False, **options)
    return ProgressBar({"eval_bleu": "dev BLEU"}, console), console.file


def log(progress, step, logs, model=None):
    state = TrainerState(global_step=step, max_steps=100, is_world_process_zero=True)
    progress.on_log(None, state, TrainerControl(), logs=dict(logs), model=model or nn.Module())


@pytest.mark.parametrize(
    ("values", "picture"),
    [
        ([1.0, 1.25, 1.5, 2.0], "▁▃▅█"),
        ([1.0, 1.124, 1.126, 1.999], "▁▁▂█"),
        ([0.5, 2.5], "▁█"),
        ([], ""),
    ],
)
def test_sparser_heads_are_taller(values, picture):
    assert alpha_picture(values) == picture
    assert alpha_picture([2 * x for x in values], low=2, high=4) == picture


def test_where_there_is_no_terminal_each_log_is_a_line():
    progress, file = bar(width=40)
    progress.on_train_begin(None, STATE, TrainerControl())
    log(progress, 10, LOGS)
    progress.on_step_end(None, STATE, TrainerControl())
    log(progress, 10, {"eval_bleu": 12.3456, "eval_loss": 2.0})
    log(progress, 20, {**LOGS, "loss": 1.0})
    log(progress, 100, {"train_runtime": 3.0, "loss": 1.0, "tokens_per_second": 1.0})
    progress.close()
    assert file.getvalue().splitlines() == [
        "step 10/100  tokens/s 12,346  loss 2.346  α ▁▃▃▅▅▇",
        "step 10/100  dev BLEU 12.35",
        "step 20/100  tokens/s 12,346  loss 1.000  α ▁▃▃▅▅▇",
    ]


def last_bar(file):
    return [line for line in file.getvalue().splitlines() if "training" in line][-1]


def test_a_terminal_gets_one_line_with_everything():
    progress, file = bar(width=150, force_terminal=True, color_system=None)
    progress.on_train_begin(None, STATE, TrainerControl())
    log(progress, 10, {"eval_bleu": 12.3456})
    state = TrainerState(global_step=40, max_steps=100, is_world_process_zero=True)
    progress.on_step_end(None, state, TrainerControl(should_evaluate=True))
    log(progress, 40, LOGS)  # a step that is logged before it is scored
    progress._bar.refresh()
    assert "40/100" in last_bar(file)
    assert "scoring development data  dev BLEU 12.35  tokens/s 12,346" in last_bar(file)
    log(progress, 40, {"eval_bleu": 20.0})
    progress.close()
    assert "dev BLEU 20.00  tokens/s 12,346  loss 2.346  α ▁▃▃▅▅▇" in last_bar(file)
    assert "scoring" not in last_bar(file)
    progress.close()  # twice is once


def test_many_heads_are_drawn_as_one_block_per_attention():
    progress, file = bar(width=200)
    log(progress, 1, LOGS, SimpleNamespace(heads=8))
    log(progress, 2, LOGS, SimpleNamespace(heads=9))
    pictures = [line.rpartition("α ")[2] for line in file.getvalue().splitlines()]
    assert [len(x) for x in pictures] == [24, 3]


def test_a_narrow_terminal_still_gets_one_line():
    progress, file = bar(width=60, force_terminal=True, color_system=None)
    progress.on_train_begin(None, STATE, TrainerControl())
    log(progress, 10, LOGS, SimpleNamespace(heads=8))
    progress.close()
    assert all(len(line) < 90 for line in file.getvalue().splitlines())
    assert "…" in file.getvalue()


def test_heads_that_are_all_the_same_make_no_picture(monkeypatch):
    monkeypatch.setattr(progress_module, "current_alpha", lambda model: {"a": torch.ones(4)})
    progress, file = bar(width=100)
    log(progress, 1, LOGS)
    assert "α" not in file.getvalue()


def test_other_processes_are_silent():
    progress, file = bar(width=100, force_terminal=True)
    other = TrainerState(max_steps=9, is_world_process_zero=False)
    progress.on_train_begin(None, other, TrainerControl())
    progress.on_log(None, other, TrainerControl(), logs=dict(LOGS), model=nn.Module())
    progress.close()
    assert file.getvalue() == ""
