"""One training from start or checkpoint to its end."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerState

from adasparse.training.checkpoints import STAGING, checkpoint_step, checkpoints, latest_intact
from adasparse.training.monitor import StopRequest
from adasparse.training.trainer import TrainingStopped

#: Folder of the checkpoints, in that of a run.
CHECKPOINTS = "checkpoints"


def prepare_folder(
    output: str | Path, *, resume: bool, report: Callable[[str], None]
) -> Path | None:
    """Make the folder of a run ready; return the checkpoint to go on from, if any.

    Args:
        output: The folder.
        resume: Whether to go on with what is in there. Without it, the folder must be empty.
        report: Gets a message for each damaged checkpoint.
    """
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise ValueError(f"output must be a folder; {output} is a file.")
    folder = output / CHECKPOINTS
    if not resume:
        if output.is_dir() and any(output.iterdir()):
            raise ValueError(
                f"output must be a new or empty folder; {output} has files in it. "
                "Add --resume to go on with the training there, or name another folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        return None
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    found, damaged = latest_intact(folder)
    for path in damaged:
        report(f"{path.name} is damaged and is not used.")
    if damaged and found is None:
        raise ValueError(
            f"None of the checkpoints in {folder} is intact: "
            f"{', '.join(path.name for path in checkpoints(folder))}. Start in another folder."
        )
    report(
        "There is no checkpoint yet: training starts from the beginning."
        if found is None
        else f"Going on after step {checkpoint_step(found)}."
    )
    return found


def run_training(trainer: Any, checkpoint: Path | None) -> None:
    """Train to the end; that of a training that ended early has been reached already.

    Raises:
        TrainingStopped: If Ctrl-C or SIGTERM asked for it; a checkpoint has been written.
    """
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        trainer.best.replay(state.log_history)
        if trainer.best.is_over:
            return
    request = StopRequest()
    trainer.add_callback(request)
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        request.restore()
    if request.is_asked and trainer.state.global_step < trainer.state.max_steps:
        raise TrainingStopped(f"Stopped after step {trainer.state.global_step}, as asked.")
