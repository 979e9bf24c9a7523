"""One training from its job to a finished run folder."""

from contextlib import ExitStack
from pathlib import Path

from transformers import TrainerState

from adasparse._files import in_words
from adasparse._threads import thread_limit
from adasparse.training.callbacks import StopRequest, TrainingLog
from adasparse.training.checkpoints import checkpoint_step, is_disk_error
from adasparse.training.distributed import first_decides
from adasparse.training.job import TrainingJob, job_identity
from adasparse.training.model_selection import finish_run
from adasparse.training.progress import ProgressBar
from adasparse.training.results import is_finished
from adasparse.training.run_folder import LOG, Report, locked, prepare_folder, undone_on_error
from adasparse.training.trainer import EngineTrainer, TrainingStopped, recipe_arguments


def ignore(message: str) -> None:
    """Receive a message for the user and do nothing with it."""


def fit(
    job: TrainingJob,
    *,
    resume: bool = False,
    report: Report = ignore,
    progress: ProgressBar | None = None,
) -> Path:
    """Train a model; return the folder of the run, which loads with the Auto classes.

    Args:
        job: Recipe, data and model.
        resume: Whether to continue the training in the folder of the run.
        report: Receives messages for the user.
        progress: Progress bar; none if None.

    Raises:
        ValueError: If the recipe, the data or the folder cannot be used, or if training diverges.
        TrainingStopped: If it was interrupted; ``resume`` continues from there.
    """
    recipe, arguments = job.recipe, recipe_arguments(job.recipe)
    output = Path(recipe.output)
    report = report if arguments.process_index == 0 else ignore
    identity = job_identity(job, arguments.world_size)
    with ExitStack() as stack, thread_limit(recipe.threads):
        first_decides(lambda: stack.enter_context(locked(output)))
        with ExitStack() as building:
            first_decides(lambda: building.enter_context(undone_on_error(output)))
            checkpoint = first_decides(
                lambda: prepare_folder(recipe, identity, resume=resume, report=report)
            )
            trainer = job.build_trainer(arguments, report=report)
        trainer.add_callback(TrainingLog(output / LOG))
        if progress is not None:
            trainer.add_callback(progress)
        try:
            has_trained = _train(trainer, checkpoint, report)
        finally:
            if progress is not None:
                progress.close()
        if checkpoint and not has_trained and is_finished(recipe, checkpoint_step(checkpoint)):
            report("This training has ended already.")
        else:
            first_decides(lambda: _finish(job, trainer, report))
    return output


def _train(trainer: EngineTrainer, checkpoint: Path | None, report: Report) -> bool:
    """Train to the last step; return whether any was left.

    Raises:
        TrainingStopped: If Ctrl-C or SIGTERM asked for it, after a checkpoint; if the disk failed.
    """
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        trainer.best.replay(state.log_history)
        if trainer.best.is_over or state.global_step == trainer.args.max_steps:
            return False
    request = StopRequest(report)
    trainer.add_callback(request)
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except OSError as error:
        raise TrainingStopped(
            f"Training ended after step {trainer.state.global_step}: {in_words(error)}"
        ) from error
    except (ValueError, RuntimeError) as error:
        trainer.check_finite(cause=error)
        raise
    finally:
        request.restore()
        if trainer.tensorboard is not None:
            trainer.tensorboard.restore()
    if request.is_asked and trainer.state.global_step < trainer.state.max_steps:
        raise TrainingStopped(f"Stopped after step {trainer.state.global_step}, as asked.")
    return True


def _finish(job: TrainingJob, trainer: EngineTrainer, report: Report) -> None:
    # Scored as it will be used, not in the precision of training.
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    try:
        finish_run(
            model,
            job.recipe,
            trainer.scorer,
            best=trainer.best,
            tokenizer=trainer.processing_class,
            card=job.model_card,
            report=report,
        )
    except Exception as error:
        if not is_disk_error(error):
            raise
        raise TrainingStopped(
            f"Training is done, but its model could not be written: {in_words(error)} "
            f"Make room where {job.recipe.output} is."
        ) from error
