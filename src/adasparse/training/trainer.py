"""The engine: a Trainer with token batches, per-step seeding and verified checkpoints."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from adasparse._files import in_words, write_atomically
from adasparse.integrations.huggingface import SparsityTrainerMixin
from adasparse.nn import alpha_parameters
from adasparse.training.batches import RunningNumbers, TokenBatches
from adasparse.training.callbacks import BestModel, SpeedMeter
from adasparse.training.checkpoints import STAGING, is_disk_error, publish, rotate
from adasparse.training.distributed import first_decides
from adasparse.training.muon import with_muon
from adasparse.training.optimizer_state import load_optimizer, save_optimizer
from adasparse.training.recipe import TrainingRecipe
from adasparse.training.run_folder import CHECKPOINTS
from adasparse.training.tensorboard import TensorBoardLog

#: Loss summed since the last line of the log, in a checkpoint.
_LOSS = "loss.json"


class TrainingStopped(Exception):  # noqa: N818  # being asked to stop is no error
    """Training ended early and can be resumed."""


class Scorer(Protocol):
    """Scores a model on development data."""

    def scores(self, model: PreTrainedModel) -> dict[str, float]:
        """Return every score by name."""
        ...


def recipe_arguments(recipe: TrainingRecipe) -> TrainingArguments:
    """Return the arguments of a Trainer that leaves order, progress and checkpoints to the engine.

    The processes that torchrun started find each other here.
    """
    has_gpu = torch.cuda.is_available()
    return TrainingArguments(
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
        dataloader_pin_memory=has_gpu,
        accelerator_config={"even_batches": False, "use_seedable_sampler": False},
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        eval_strategy="steps",
        logging_nan_inf_filter=False,
        logging_strategy="steps",
        remove_unused_columns=False,
        report_to="none",
        save_strategy="steps",
    )


class EngineMixin:
    """Trainer mixin: token batching, per-step seeding, verified checkpoints.

    A micro-batch is numbered by the step and, within it, over accumulation and processes. Its
    random numbers come from the seed and that number, so that neither the number of processes nor
    the step from which training was resumed makes a difference. The first process scores for all
    of them, so that they decide alike.

    Args:
        batches: Examples of each batch, for the whole training.
        scorer: Scores development data.
        keep: Number of checkpoints to keep beside the best one.
        best: Selects the best checkpoint; it is also added as a callback.
        alpha_lr_factor: Factor on the learning rate for learned values of alpha.
        uses_muon: Whether Muon updates the matrices between the layers.
        tensorboard: Folder for TensorBoard; nothing is written if None.
        report: Receives messages for the user.
    """

    # Attributes of the Trainer.
    accelerator: Any
    args: Any
    callback_handler: Any
    control: Any
    data_collator: Callable[[list[Any]], dict[str, Tensor]]
    lr_scheduler: Any
    model: Any
    optimizer: Any
    processing_class: Any
    state: Any
    train_dataset: Any
    _globalstep_last_logged: int
    _tr_loss: Tensor

    tensorboard: TensorBoardLog | None = None

    def __init__(
        self,
        *args: Any,
        batches: TokenBatches | RunningNumbers,
        scorer: Scorer,
        keep: int,
        best: BestModel,
        alpha_lr_factor: float = 1.0,
        uses_muon: bool = False,
        tensorboard: str | Path | None = None,
        report: Callable[[str], None] = lambda message: None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._batches, self._keep, self.best = batches, keep, best
        self.scorer, self._alpha_lr_factor, self._uses_muon = scorer, alpha_lr_factor, uses_muon
        self._micro_batch = (-1, 0)
        self._is_staging = False
        self._speed = SpeedMeter()
        trainer: Any = self
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        self._loss_since_log = _LossSinceLog(trainer)
        for callback in (self._loss_since_log, self._speed, best):
            trainer.add_callback(callback)
        if tensorboard is not None:
            self.tensorboard = TensorBoardLog(tensorboard, report)
            trainer.add_callback(self.tensorboard)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of this process."""
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=self._batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)  # type: ignore[no-any-return]

    def training_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Train on one micro-batch, with random numbers of its own."""
        step, index = self._micro_batch
        index = index + 1 if step == self.state.global_step else 0
        self._micro_batch = (self.state.global_step, index)
        per_step = self.args.gradient_accumulation_steps * self.args.world_size
        number = self.state.global_step * per_step
        number += index * self.args.world_size + self.args.process_index
        torch.manual_seed((self.args.seed * 0x9E3779B97F4A7C15 + number) % 2**63)
        has_target = bool(self.model.config.is_encoder_decoder)
        self._speed.tokens += count_tokens(inputs, has_target=has_target) * self.args.world_size
        return super().training_step(model, inputs, *args, **kwargs)  # type: ignore[misc,no-any-return]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Score the development data."""
        found = first_decides(lambda: self.scorer.scores(self.model))
        metrics = {f"eval_{name}": value for name, value in found.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the speed since the last line and the number of epochs."""
        per_step = self.args.gradient_accumulation_steps * self.args.world_size
        self.state.epoch = self.state.global_step * per_step / self._batches.per_epoch
        if "loss" in logs:
            logs["tokens_per_second"] = self._speed.drain()
        super().log(logs, start_time)  # type: ignore[misc]
        if not math.isfinite(logs.get("loss", 0.0)):
            raise ValueError(self._diverged(f"the loss is {logs['loss']}"))

    def check_finite(self, *, cause: Exception | None = None) -> None:
        """Raise a ValueError that says that training diverged, if a weight is not finite."""
        for name, weight in self.model.named_parameters():
            if not torch.isfinite(weight).all():
                raise ValueError(self._diverged(f"{name} is not finite")) from cause

    def _diverged(self, sign: str) -> str:
        return (
            f"Training diverged: {sign} after step {self.state.global_step}. "
            "Try a smaller learning_rate or more warmup_steps."
        )

    def create_optimizer(self, model: Any = None) -> Any:
        """Return the optimizer, with a group of its own for alpha if its learning rate differs."""
        if self.optimizer is None:
            optimizer = super().create_optimizer(model)  # type: ignore[misc]
            model = self.model if model is None else model
            if self._alpha_lr_factor != 1:
                _split_alpha(optimizer, model, self._alpha_lr_factor)
            self.optimizer = with_muon(optimizer, model) if self._uses_muon else optimizer
        return self.optimizer

    def _init_training_state(self, max_steps: int, *args: Any) -> Any:
        found = super()._init_training_state(max_steps, *args)  # type: ignore[misc]
        self.state.compute_steps(self.args, max_steps)  # a checkpoint has those it was made with
        return found

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0: the number is not used, and counting takes time at each step."""
        return 0

    def _get_output_dir(self, trial: Any) -> str:
        folder: str = super()._get_output_dir(trial)  # type: ignore[misc]
        return str(Path(folder) / STAGING) if self._is_staging else folder

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint elsewhere, note its hashes, and only then give it its name."""
        folder = Path(self.args.output_dir)
        staging = folder / STAGING
        staged = staging / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._is_staging = True
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            loss = self.accelerator.gather(self._tr_loss).mean().item()
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                write_atomically(staged / _LOSS, json.dumps([loss, self._globalstep_last_logged]))
                publish(staged, folder)
                rotate(
                    folder,
                    keep=self._keep,
                    every=self.state.save_steps,
                    best_step=self.best.step,
                )
        except Exception as error:
            if not is_disk_error(error):
                raise
            raise TrainingStopped(
                f"The checkpoint of step {self.state.global_step} could not be written: "
                f"{in_words(error)} Make room where {folder} is."
            ) from error
        finally:
            self._is_staging = False
            if self.args.should_save:
                shutil.rmtree(staging, ignore_errors=True)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Write model and tokenizer; the settings, which Trainer pickles, stand in the recipe."""
        output_dir = output_dir or self.args.output_dir
        self.model.save_pretrained(output_dir, state_dict=state_dict)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(output_dir)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            save_optimizer(output_dir, self.optimizer, self.lr_scheduler)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(checkpoint, self.optimizer, self.lr_scheduler)
            self._loss_since_log.checkpoint = checkpoint

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        pass  # tied and fixed weights are not in the file, the rest is verified by its hash

    def _save_rng_state(self, output_dir: str) -> None:
        pass  # every micro-batch seeds its own

    def _load_rng_state(self, checkpoint: str | None) -> None:
        pass


class EngineTrainer(EngineMixin, SparsityTrainerMixin, Trainer):
    """Trainer with the engine, for models with sparse attention."""


def _split_alpha(optimizer: torch.optim.Optimizer, model: nn.Module, factor: float) -> None:
    """Move the parameters of alpha to the last group, whose learning rate has a factor."""
    spared = {id(x) for x in alpha_parameters(model) if x.requires_grad}
    alpha = [x for group in optimizer.param_groups for x in group["params"] if id(x) in spared]
    if not alpha:
        return
    for group in optimizer.param_groups:
        group["params"] = [x for x in group["params"] if id(x) not in spared]
    lr = optimizer.param_groups[0]["lr"] * factor
    optimizer.add_param_group({"params": alpha, "weight_decay": 0.0, "lr": lr})


class _LossSinceLog(TrainerCallback):
    """Restores the loss summed since the last line of the log from a checkpoint."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.checkpoint: str | None = None

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Continue the sum of the checkpoint."""
        if self.checkpoint is not None:
            loss, last = json.loads((Path(self.checkpoint) / _LOSS).read_text(encoding="utf-8"))
            self.trainer._tr_loss += loss
            self.trainer._globalstep_last_logged = last


def count_tokens(inputs: dict[str, Tensor], *, has_target: bool = True) -> int:
    """Return the number of tokens of a batch, without padding.

    Args:
        inputs: Inputs of a model.
        has_target: Whether ``labels`` are another text than ``input_ids``, and count too.
    """
    read = inputs.get("attention_mask")
    tokens = inputs["input_ids"].numel() if read is None else int(read.sum())
    return tokens + (int((inputs["labels"] != -100).sum()) if has_target else 0)
