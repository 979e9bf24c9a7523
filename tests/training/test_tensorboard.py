"""Files for TensorBoard, and disks that do not take them."""

import errno
import threading

import pytest
from tensorboard.summary.writer.record_writer import RecordWriter

from adasparse.longcontext.train import train_task
from support.small_tasks import task_recipe


@pytest.mark.parametrize("call", [1, 4])
def test_a_full_disk_does_not_end_training(tmp_path, monkeypatch, capfd, call):
    """A thread used to print a traceback, and training ended."""
    true, calls, messages, hook = RecordWriter.write, [], [], threading.excepthook

    def full(self, data):
        calls.append(1)
        if len(calls) >= call:
            raise OSError(errno.ENOSPC, "No space left on device")
        true(self, data)

    monkeypatch.setattr(RecordWriter, "write", full)
    train_task(task_recipe(tmp_path / "run", log_steps=1), report=messages.append)
    assert len(calls) >= call
    assert [x for x in messages if "TensorBoard" in x] == [
        "Files for TensorBoard cannot be written: No space left on device. "
        "Training continues without."
    ]
    assert "Traceback" not in capfd.readouterr().err
    assert (tmp_path / "run/results.json").is_file()
    assert threading.excepthook is hook


def test_a_folder_that_cannot_be_made_does_not_end_training(tmp_path, monkeypatch):
    messages = []
    (tmp_path / "blocked").write_text("a file")
    monkeypatch.setattr("adasparse.longcontext.train.TENSORBOARD", "../blocked/here")
    train_task(task_recipe(tmp_path / "run"), report=messages.append)
    assert any("Files for TensorBoard cannot be written" in x for x in messages)
