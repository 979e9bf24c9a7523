import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from adasparse.training import average_checkpoints, checkpoints, is_intact, latest_intact
from adasparse.training.checkpoints import HASHES, is_disk_error, publish, regular, rotate, seal


def make(folder, step, *, weights=None):
    """A checkpoint with a folder in it, written as the Trainer does."""
    staged = folder / ".partial" / f"checkpoint-{step}"
    (staged / "inner").mkdir(parents=True)
    (staged / "inner" / "file.json").write_text(f"{step}")
    save_file(weights or {"x": torch.full((3,), float(step))}, staged / "model.safetensors")
    return publish(staged, folder)


def steps(folder):
    return [int(path.name.split("-")[1]) for path in checkpoints(folder)]


def test_a_published_checkpoint_is_intact_and_has_its_name(tmp_path):
    path = make(tmp_path, 5)
    assert path == tmp_path / "checkpoint-5"
    assert is_intact(path)
    assert set(json.loads((path / HASHES).read_text())) == {"inner/file.json", "model.safetensors"}
    assert list((tmp_path / ".partial").iterdir()) == []


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "one bit": lambda x: flip(x / "model.safetensors"),
    "cut short": lambda x: (x / "model.safetensors").write_bytes(b"x"),
    "emptied": lambda x: (x / "inner" / "file.json").write_bytes(b""),
    "file missing": lambda x: (x / "inner" / "file.json").unlink(),
    "hashes missing": lambda x: (x / HASHES).unlink(),
    "hashes cut short": lambda x: (x / HASHES).write_text('{"model.safe'),
    "hashes of nothing": lambda x: (x / HASHES).write_text("{}"),
    "hashes of another kind": lambda x: (x / HASHES).write_text("[1]"),
    "folder empty": lambda x: (shutil.rmtree(x), x.mkdir()),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_noticed_and_the_one_before_is_used(tmp_path, how):
    before, newest = make(tmp_path, 9), make(tmp_path, 10)
    assert latest_intact(tmp_path) == (newest, [])
    DAMAGE[how](newest)
    assert not is_intact(newest)
    assert latest_intact(tmp_path) == (before, [newest])


def test_there_may_be_none_or_none_intact(tmp_path):
    assert latest_intact(tmp_path) == (None, [])
    assert latest_intact(tmp_path / "missing") == (None, [])
    path = make(tmp_path, 1)
    flip(path / "model.safetensors")
    assert latest_intact(tmp_path) == (None, [path])


def test_checkpoints_are_in_the_order_of_steps_and_nothing_else_is_one(tmp_path):
    for step in (100, 20, 3):
        make(tmp_path, step)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-7").write_text("a file")
    (tmp_path / "average.safetensors").write_text("")
    assert steps(tmp_path) == [3, 20, 100]


def test_publishing_replaces(tmp_path):
    flip(make(tmp_path, 4) / "model.safetensors")
    assert is_intact(make(tmp_path, 4))


def test_files_added_later_do_no_harm(tmp_path):
    path = make(tmp_path, 1)
    (path / "notes.txt").write_text("mine")
    assert is_intact(path)
    seal(path)
    assert "notes.txt" in json.loads((path / HASHES).read_text())


def test_rotation_keeps_the_best_and_the_newest(tmp_path):
    for step in (10, 20, 30, 40, 50):
        make(tmp_path, step)
    rotate(tmp_path, keep=2, every=10, best_step=20)
    assert steps(tmp_path) == [20, 40, 50]
    rotate(tmp_path, keep=2, every=10, best_step=None)
    assert steps(tmp_path) == [40, 50]


def test_an_interruption_takes_no_room_from_regular_checkpoints(tmp_path):
    """What is averaged in the end must not depend on where training was stopped."""
    for step in (10, 20, 23, 30):
        make(tmp_path, step)
        rotate(tmp_path, keep=3, every=10, best_step=None)
    assert steps(tmp_path) == [10, 20, 30]
    make(tmp_path, 33)
    rotate(tmp_path, keep=3, every=10, best_step=None)
    assert steps(tmp_path) == [20, 30, 33]  # to go on from 33
    make(tmp_path, 36)
    rotate(tmp_path, keep=3, every=10, best_step=33)
    assert steps(tmp_path) == [20, 30, 33, 36]
    assert [x.name for x in regular(checkpoints(tmp_path), every=10)] == [
        "checkpoint-20", "checkpoint-30", "checkpoint-36"]  # fmt: skip


def test_the_average_is_the_mean_in_float64(tmp_path):
    torch.manual_seed(0)
    made = [{"a": torch.randn(50), "b": torch.randn(3).bfloat16(), "n": torch.tensor([i])}
            for i in (1, 2, 6)]  # fmt: skip
    folders = [make(tmp_path, i, weights=weights) for i, weights in enumerate(made)]
    average_checkpoints(folders, tmp_path / "mean.safetensors")
    mean = load_file(tmp_path / "mean.safetensors")
    for name in made[0]:
        exact = torch.stack([x[name].double() for x in made]).mean(0)
        assert torch.equal(mean[name], exact.to(made[0][name].dtype))
    assert mean["n"].tolist() == [3]
    assert not list(tmp_path.glob(".mean*"))


def test_one_checkpoint_is_its_own_average(tmp_path):
    path = make(tmp_path, 1)
    average_checkpoints([path], tmp_path / "mean.safetensors")
    assert torch.equal(load_file(tmp_path / "mean.safetensors")["x"], torch.ones(3))


def test_the_average_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one checkpoint to average; got none"):
        average_checkpoints([], tmp_path / "x")


def test_an_average_that_fails_leaves_nothing(tmp_path):
    path = make(tmp_path, 1)
    with pytest.raises(FileNotFoundError):
        average_checkpoints([path, tmp_path / "missing"], tmp_path / "mean.safetensors")
    assert sorted(x.name for x in tmp_path.iterdir()) == [".partial", "checkpoint-1"]


def test_errors_of_the_disk_are_known_in_other_words(tmp_path):
    with pytest.raises(Exception, match="No such file") as error:
        save_file({"x": torch.ones(1)}, tmp_path / "missing" / "x.safetensors")
    assert is_disk_error(error.value)
    assert is_disk_error(OSError(28, "No space left on device"))
    assert is_disk_error(Exception("No space left on device (os error 28)"))
    assert not is_disk_error(RuntimeError("size mismatch"))


@pytest.mark.parametrize("name", ["model.safetensors", "inner/file.json"])
def test_a_file_that_cannot_be_read_is_damaged_whatever_its_hash(tmp_path, name):
    """Resuming used to end in a traceback."""
    path = make(tmp_path, 1)
    (path / name).write_bytes(b"\xff" * 50)
    seal(path)
    assert not is_intact(path)
