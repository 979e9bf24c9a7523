"""One training from start or checkpoint to its end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerState

from adasparse.training.monitor import StopRequest
from adasparse.training.trainer import TrainingStopped


def run_training(
    trainer: Any, checkpoint: Path | None, *, report: Callable[[str], None] = lambda message: None
) -> bool:
    """Train to the end; return whether there was anything left to train.

    Args:
        trainer: A Trainer with the engine.
        checkpoint: Where to go on from.
        report: Gets a message when a signal asks to stop.

    Raises:
        TrainingStopped: If Ctrl-C or SIGTERM asked for it, after a checkpoint; if the disk failed.
    """
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if state.global_step > trainer.args.max_steps:
            raise ValueError(
                f"max_steps must be at least {state.global_step}, where this training is already; "
                f"got {trainer.args.max_steps}."
            )
        trainer.best.replay(state.log_history)
        if trainer.best.is_over or state.global_step == trainer.args.max_steps:
            return False
    request = StopRequest(report)
    trainer.add_callback(request)
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except OSError as error:
        raise TrainingStopped(
            f"Training ended after step {trainer.state.global_step}: {error}."
        ) from error
    finally:
        request.restore()
    if request.is_asked and trainer.state.global_step < trainer.state.max_steps:
        raise TrainingStopped(f"Stopped after step {trainer.state.global_step}, as asked.")
    return True
