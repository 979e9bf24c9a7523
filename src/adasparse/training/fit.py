"""One training as a recipe tells it: its folder, its steps and the model that is kept."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel, TrainingArguments

from adasparse.training.checkpoints import checkpoint_step, is_disk_error
from adasparse.training.finish import finish_run, is_finished
from adasparse.training.folder import CHECKPOINTS, prepare_folder
from adasparse.training.monitor import TrainingLog
from adasparse.training.processes import first_decides
from adasparse.training.progress import ProgressBar
from adasparse.training.run import run_training
from adasparse.training.trainer import TrainingStopped, training_arguments

LOG = "log.jsonl"

Arguments = TypeVar("Arguments", bound=TrainingArguments)
Card = Callable[[PreTrainedModel, dict[str, Any]], str]


def recipe_arguments(cls: type[Arguments], recipe: Any) -> Arguments:
    """Return what a recipe says in the words of transformers."""
    has_gpu = torch.cuda.is_available()
    return training_arguments(
        cls,
        output_dir=str(Path(recipe.output) / CHECKPOINTS),
        max_steps=recipe.max_steps,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        lr_scheduler_type=recipe.schedule.replace("-", "_"),
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        adam_beta2=recipe.adam_beta2,
        seed=recipe.seed,
        logging_steps=recipe.log_steps,
        eval_steps=recipe.eval_steps,
        save_steps=recipe.save_steps,
        bf16=recipe.bf16,
        use_cpu=not has_gpu,
        ddp_backend="gloo" if not has_gpu and "WORLD_SIZE" in os.environ else None,
        dataloader_num_workers=recipe.workers,
    )


@contextmanager
def thread_limit(number: int | None) -> Iterator[None]:
    """Use that many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_session(
    recipe: Any,
    build_trainer: Callable[[], Any],
    *,
    card: Card,
    facts: Mapping[str, Any],
    free: Collection[str],
    resume: bool,
    report: Callable[[str], None],
    progress: ProgressBar | None,
) -> Path:
    """Train a model; return the folder of the run, which loads with the Auto classes.

    Args:
        recipe: How to train, a dataclass.
        build_trainer: Makes a Trainer with the engine, and a new model.
        card: Makes the model card of a model and its results.
        facts: What the recipe does not tell of the training, such as a hash of the data.
        free: Settings that may be others when training goes on.
        resume: Whether to go on with what is in the folder of the run.
        report: Gets messages for the user.
        progress: What shows how it goes; nothing if None.

    Raises:
        TrainingStopped: If it was interrupted; ``resume`` goes on from there.
    """
    output = Path(recipe.output)
    checkpoint = first_decides(
        lambda: prepare_folder(output, recipe, facts=facts, free=free, resume=resume, report=report)
    )
    with thread_limit(recipe.threads):
        trainer = build_trainer()
        trainer.add_callback(TrainingLog(output / LOG))
        if progress is not None:
            trainer.add_callback(progress)
        try:
            has_trained = run_training(trainer, checkpoint, report=report)
        finally:
            if progress is not None:
                progress.close()
        if checkpoint and not has_trained and is_finished(recipe, checkpoint_step(checkpoint)):
            report("This training has ended already.")
        else:
            first_decides(lambda: _finish(trainer, recipe, card, report))
    return output


def _finish(trainer: Any, recipe: Any, card: Card, report: Callable[[str], None]) -> None:
    # Scored as it will be used, not in the precision of training.
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    try:
        finish_run(
            model,
            recipe,
            trainer.scorer,
            best=trainer.best,
            tokenizer=trainer.processing_class,
            card=card,
            report=report,
        )
    except Exception as error:
        if not is_disk_error(error):
            raise
        raise TrainingStopped(
            f"Training is done, but its model could not be written: {error}. "
            f"Make room where {recipe.output} is."
        ) from error
