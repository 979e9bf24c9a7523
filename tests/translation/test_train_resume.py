"""Whatever happens on the way, a training ends the same."""

import errno
import shutil
import sys
from pathlib import Path

import pytest
from transformers import PreTrainedModel, TrainerCallback

from adasparse.training import TrainingStopped, checkpoints, is_intact, read_log
from adasparse.translation.train import train
from support.small_runs import (
    assert_same_run,
    log_of,
    small_data,
    small_recipe,
    small_run,
    state_of,
)

slow = pytest.mark.slow


class Crash(Exception):  # noqa: N818  # not an error of ours
    pass


class Breaks(TrainerCallback):
    """Stands in for the progress bar and ends training at a step, in one of its moments."""

    def __init__(self, step, moment="on_step_end"):
        self.step = step
        setattr(self, moment, self._break)

    def _break(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise Crash

    def close(self):
        pass


def steps(output):
    return [int(path.name.split("-")[1]) for path in checkpoints(output / "checkpoints")]


def crash(recipe, step, moment="on_step_end", **options):
    with pytest.raises(Crash):
        train(recipe, progress=Breaks(step, moment), **options)


def test_two_trainings_are_the_same(tmp_path):
    assert_same_run(train(small_recipe(tmp_path / "run")), small_run())


@pytest.mark.parametrize(
    ("step", "moment", "left"),
    [
        (0, "on_step_begin", []),
        pytest.param(3, "on_step_end", [], marks=slow),
        (5, "on_step_end", [4]),
        pytest.param(6, "on_evaluate", [4], marks=slow),
        pytest.param(6, "on_save", [4, 6], marks=slow),
        pytest.param(9, "on_log", [4, 6, 8], marks=slow),
        (11, "on_pre_optimizer_step", [4, 6, 8]),
        (12, "on_train_end", [4, 6, 8, 12]),
    ],
)
def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path, step, moment, left):
    recipe = small_recipe(tmp_path / "run")
    crash(recipe, step, moment)
    assert steps(tmp_path / "run") == left
    train(recipe, resume=True)
    assert_same_run(tmp_path / "run", small_run())


@slow
def test_it_may_be_interrupted_again_and_again(tmp_path):
    recipe = small_recipe(tmp_path / "run")
    for step in (2, 5, 7, 10):
        crash(recipe, step, resume=True)
    train(recipe, resume=True)
    assert_same_run(tmp_path / "run", small_run())


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 2, "bf16": True},
        pytest.param({"attention": "softmax"}, marks=slow),
        pytest.param({"attention": "entmax", "workers": 1}, marks=slow),
    ],
    ids=str,
)
def test_so_do_trainings_of_other_kinds(tmp_path, changes):
    whole = train(small_recipe(tmp_path / "whole", **changes))
    recipe = small_recipe(tmp_path / "run", **changes)
    crash(recipe, 7)
    train(recipe, resume=True)
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize(
    "changes", [{"workers": 1}, {"log_steps": 1, "eval_steps": 4, "keep": 12}], ids=str
)
def test_what_only_watches_changes_no_weights(tmp_path, changes):
    run = train(small_recipe(tmp_path / "run", **changes))
    name = "checkpoints/checkpoint-12/model.safetensors"
    assert state_of(run)[name] == state_of(small_run())[name]


def test_settings_that_only_watch_may_change_on_the_way(tmp_path):
    crash(small_recipe(tmp_path / "run"), 5)
    changes = {"max_steps": 14, "save_steps": 7, "log_steps": 2, "eval_steps": 7, "keep": 3}
    run = train(small_recipe(tmp_path / "run", **changes, patience=9, workers=1), resume=True)
    assert steps(run) == [7, 14]  # 4 is no multiple of save_steps, and has been overtaken
    assert [x["step"] for x in log_of(run) if "loss" in x] == [3, 6, 8, 10, 12, 14]
    assert [x["step"] for x in log_of(run) if "dev_bleu" in x] == [7, 14]
    whole = train(small_recipe(tmp_path / "whole", **changes))
    name = "checkpoints/checkpoint-14/model.safetensors"
    assert state_of(run)[name] == state_of(whole)[name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "softmax"}, "attention was 'adaptive', now 'softmax'"),
        ({"width": 32, "seed": 4}, "seed was 3, now 4; width was 16, now 32"),
        ({"accumulate": 2}, "accumulate times processes was 1, now 2"),
        ({"data": 50}, "content of data was '[0-9a-f]{16}', now"),
    ],
    ids=str,
)
def test_settings_that_matter_must_stay(tmp_path, changes, message):
    recipe = small_recipe(tmp_path / "run")
    crash(recipe, 5)
    before = {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}
    if "data" in changes:
        changes = {"data": str(small_data(changes["data"]))}
    with pytest.raises(ValueError, match=f"resumed with the same settings only; {message}"):
        train(small_recipe(tmp_path / "run", **changes), resume=True)
    assert before == {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}


@slow
def test_data_may_move(tmp_path):
    recipe = small_recipe(tmp_path / "run")
    crash(recipe, 5)
    shutil.copytree(small_data(), tmp_path / "copy")
    train(small_recipe(tmp_path / "run", data=str(tmp_path / "copy")), resume=True)
    assert_same_run(tmp_path / "run", small_run())


@slow
def test_a_run_may_move(tmp_path):
    crash(small_recipe(tmp_path / "before"), 5)
    shutil.move(tmp_path / "before", tmp_path / "after")
    train(small_recipe(tmp_path / "after"), resume=True)
    assert_same_run(tmp_path / "after", small_run())


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path):
    recipe = small_recipe(tmp_path / "run")
    crash(recipe, 11)
    weights = tmp_path / "run/checkpoints/checkpoint-8/optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    messages = []
    train(recipe, resume=True, report=messages.append)
    assert "checkpoint-8 is damaged" in messages[0]
    assert messages[1] == "Resuming after step 6."
    assert_same_run(tmp_path / "run", small_run())


def test_when_none_is_intact_nothing_is_touched(tmp_path):
    recipe = small_recipe(tmp_path / "run")
    crash(recipe, 5)
    (tmp_path / "run/checkpoints/checkpoint-4/model.safetensors").write_text("")
    with pytest.raises(ValueError, match=r"None of the checkpoints in .* is intact: checkpoint-4"):
        train(recipe, resume=True)
    assert steps(tmp_path / "run") == [4]


def test_a_damaged_checkpoint_is_neither_averaged_nor_chosen(tmp_path):
    recipe = small_recipe(tmp_path / "run")
    crash(recipe, 12, "on_train_end")
    for step in (6, 8):  # the best so far, and one of the last two
        (tmp_path / f"run/checkpoints/checkpoint-{step}/model.safetensors").write_text("")
    messages = []
    train(recipe, resume=True, report=messages.append)
    assert [x for x in messages if "damaged" in x] == [
        f"checkpoint-{step} is damaged and is not used." for step in (6, 8)
    ]
    results = (tmp_path / "run/results.json").read_text()
    assert "best" not in results
    assert "average of 2" in results  # of 4 and 12


def fail_in(monkeypatch, owner, name, *, call, part_of=None):
    """Let the disk be full at one call of a function, halfway through a file if told which."""
    true, calls = getattr(owner, name), []

    def full(*args, **kwargs):
        calls.append(1)
        if len(calls) != call:
            return true(*args, **kwargs)
        if part_of is not None:
            true(*args, **kwargs)
            path = Path(part_of(args[0], Path(args[1])))
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(owner, name, full)


@pytest.mark.parametrize(
    ("owner", "name", "call", "part_of"),
    [
        (PreTrainedModel, "save_pretrained", 2, lambda model, folder: folder / "model.safetensors"),
        ("optimizer_state", "save_file", 2, lambda tensors, path: path),
        pytest.param("checkpoints", "write_atomically", 2, None, marks=slow),
        pytest.param("checkpoints", "file_hash", 12, None, marks=slow),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_full_disk_leaves_no_half_checkpoint(tmp_path, monkeypatch, owner, name, call, part_of):
    recipe = small_recipe(tmp_path / "run")
    owner = sys.modules[f"adasparse.training.{owner}"] if isinstance(owner, str) else owner
    with monkeypatch.context() as patch:
        fail_in(patch, owner, name, call=call, part_of=part_of)
        with pytest.raises(TrainingStopped, match=r"step 6 could not be written.* No space left"):
            train(recipe)
    assert steps(tmp_path / "run") == [4]
    assert is_intact(tmp_path / "run/checkpoints/checkpoint-4")
    assert not (tmp_path / "run/checkpoints/.partial").exists()
    train(recipe, resume=True)
    assert_same_run(tmp_path / "run", small_run())


def test_a_full_disk_in_the_end_leaves_no_half_model(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path / "run")
    with monkeypatch.context() as patch:
        fail_in(
            patch, sys.modules["adasparse.training.model_selection"], "write_atomically", call=1
        )
        with pytest.raises(TrainingStopped, match=r"model could not be written.* No space left"):
            train(recipe)
    assert not (tmp_path / "run/config.json").exists()
    assert not (tmp_path / "run/.model.partial").exists()
    train(recipe, resume=True)
    assert_same_run(tmp_path / "run", small_run())


@slow
def test_a_log_that_cannot_be_written_ends_training_with_a_reason(tmp_path):
    class Full(Breaks):
        def _break(self, args, state, control, **kwargs):
            if state.global_step == self.step:
                raise OSError(errno.ENOSPC, "No space left on device")

    recipe = small_recipe(tmp_path / "run")
    with pytest.raises(TrainingStopped, match=r"ended after step 9: .*No space left"):
        train(recipe, progress=Full(9, "on_log"))
    train(recipe, resume=True)
    assert_same_run(tmp_path / "run", small_run())


def test_resuming_a_finished_training_changes_nothing(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path / "run")
    train(recipe)
    before = {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}
    messages = []
    monkeypatch.setattr("adasparse.translation.train.translate", None)  # nothing is scored
    train(recipe, resume=True, report=messages.append)
    assert messages == ["Resuming after step 12.", "This training has ended already."]
    assert before == {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}


def test_a_finished_training_goes_on_with_more_steps(tmp_path):
    train(small_recipe(tmp_path / "run", max_steps=8))
    train(small_recipe(tmp_path / "run"), resume=True)
    whole = small_run()
    name = "checkpoints/checkpoint-12/model.safetensors"
    assert state_of(tmp_path / "run")[name] == state_of(whole)[name]
    assert [x["step"] for x in log_of(tmp_path / "run") if "loss" in x] == [3, 6, 9, 12]


def test_fewer_steps_than_done_are_refused(tmp_path):
    crash(small_recipe(tmp_path / "run"), 10)
    with pytest.raises(ValueError, match=r"max_steps must be at least 8.*; got 5"):
        train(small_recipe(tmp_path / "run", max_steps=5), resume=True)


def test_a_training_that_ended_early_stays_ended(tmp_path):
    changes = {"patience": 1, "monitor": "bleu", "learning_rate": 1e-9, "max_steps": 50}
    recipe = small_recipe(tmp_path / "run", **changes)
    train(recipe)
    assert steps(tmp_path / "run")[-1] == 12  # the second evaluation is no better
    before = state_of(tmp_path / "run")
    train(recipe, resume=True)
    assert state_of(tmp_path / "run") == before
    crash(small_recipe(tmp_path / "other", **changes), 12, "on_train_end")
    train(small_recipe(tmp_path / "other", **changes), resume=True)
    assert_same_run(tmp_path / "other", tmp_path / "run")


def test_a_folder_in_use_is_refused_without_resume(tmp_path):
    crash(small_recipe(tmp_path / "run"), 1)
    with pytest.raises(ValueError, match=r"must be a new or empty folder; .* Add --resume"):
        train(small_recipe(tmp_path / "run"))


def test_a_folder_of_something_else_is_refused_with_resume(tmp_path):
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(ValueError, match=r"There is no training to resume .* no recipe.yaml"):
        train(small_recipe(tmp_path), resume=True)
    assert [x.name for x in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(FileExistsError, match=r"output must be a folder; .*run is a file"):
        train(small_recipe(tmp_path / "run"))


@pytest.mark.parametrize("is_there", [True, False])
def test_resume_starts_where_nothing_has(tmp_path, is_there):
    output, messages = tmp_path / "run", []
    if is_there:
        output.mkdir()
        (output / ".recipe.yaml.partial").write_text("killed while it was wr")
    train(small_recipe(output), resume=True, report=messages.append)
    assert messages == ["There is no checkpoint yet: training starts from the beginning."]
    assert_same_run(output, small_run())


def test_a_loss_that_is_no_number_ends_training(tmp_path):
    with pytest.raises(ValueError, match=r"diverged: .* after step \d+. Try a smaller learn"):
        train(small_recipe(tmp_path / "run", learning_rate=1000, max_grad_norm=1e30))
    assert read_log(tmp_path / "run/log.jsonl")
