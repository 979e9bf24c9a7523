"""What the Trainer of transformers does differently here, and its arguments."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, ProgressCallback, TrainingArguments

from adasparse.training.batches import TokenBatches
from adasparse.training.checkpoints import STAGING, publish, rotate
from adasparse.training.monitor import BestModel, SpeedMeter
from adasparse.training.optimizer_state import load_optimizer, save_optimizer

Arguments = TypeVar("Arguments", bound=TrainingArguments)


class TrainingStopped(Exception):  # noqa: N818  # being asked to stop is no error
    """Training ended before its time and can be taken up again."""


def training_arguments(cls: type[Arguments], **changes: Any) -> Arguments:
    """Return arguments for a Trainer that leaves order, progress and checkpoints to the engine."""
    fixed = {
        "accelerator_config": {"even_batches": False, "use_seedable_sampler": False},
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
        "eval_strategy": "steps",
        "logging_nan_inf_filter": False,
        "logging_strategy": "steps",
        "lr_scheduler_type": "inverse_sqrt",
        "remove_unused_columns": False,
        "report_to": ["tensorboard"],
        "save_strategy": "steps",
    }
    return cls(**{**fixed, **changes})


class EngineMixin:
    """Put before a Trainer: batches by tokens, dropout by seed and step, checkpoints to trust.

    A micro-batch is numbered by the step and, within it, over accumulation and processes. Its
    random numbers come from the seed and that number, so that neither how many processes there are
    nor where training was taken up again makes a difference.

    Args:
        batches: Which examples go together, for the whole training.
        keep: How many checkpoints to keep beside the best one.
        best: Which one that is, also added as a callback.
    """

    # What the Trainer has.
    accelerator: Any
    args: Any
    callback_handler: Any
    control: Any
    data_collator: Callable[[list[Any]], dict[str, Tensor]]
    lr_scheduler: Any
    optimizer: Any
    state: Any
    train_dataset: Any

    def __init__(
        self, *args: Any, batches: TokenBatches, keep: int, best: BestModel, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._batches, self._keep, self.best = batches, keep, best
        self._micro_batch = (-1, 0)
        self._is_staging = False
        trainer: Any = self
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        self._speed = SpeedMeter()
        trainer.add_callback(self._speed)
        trainer.add_callback(best)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return batches by tokens, those of this process."""
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
        self._speed.tokens += count_tokens(inputs) * self.args.world_size
        return super().training_step(model, inputs, *args, **kwargs)  # type: ignore[misc,no-any-return]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the speed since the last time and how often the data have been seen."""
        per_step = self.args.gradient_accumulation_steps * self.args.world_size
        self.state.epoch = self.state.global_step * per_step / self._batches.per_epoch
        if "loss" in logs:
            logs["tokens_per_second"] = self._speed.drain()
        super().log(logs, start_time)  # type: ignore[misc]

    def _get_output_dir(self, trial: Any) -> str:
        folder: str = super()._get_output_dir(trial)  # type: ignore[misc]
        return str(Path(folder) / STAGING) if self._is_staging else folder

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint elsewhere, note its hashes, and only then give it its name."""
        folder = Path(self.args.output_dir)
        staging = folder / STAGING
        if self.args.should_save:
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._is_staging = True
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                publish(staging / f"checkpoint-{self.state.global_step}", folder)
                rotate(folder, keep=self._keep, best_step=self.best.step)
        except OSError as error:
            raise TrainingStopped(
                f"The checkpoint of step {self.state.global_step} could not be written: {error}"
            ) from error
        finally:
            self._is_staging = False
            if self.args.should_save:
                shutil.rmtree(staging, ignore_errors=True)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)  # type: ignore[misc]
        if self.args.should_save:  # a pickle of settings that stand in the recipe
            (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            save_optimizer(output_dir, self.optimizer, self.lr_scheduler)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(checkpoint, self.optimizer, self.lr_scheduler)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        pass  # tied and fixed weights are not in the file, the rest is known by its hash

    def _save_rng_state(self, output_dir: str) -> None:
        pass  # every micro-batch seeds its own

    def _load_rng_state(self, checkpoint: str | None) -> None:
        pass


def count_tokens(inputs: dict[str, Tensor]) -> int:
    """Return how many tokens a batch has, without padding: those read and those to predict."""
    read = inputs.get("attention_mask")
    tokens = inputs["input_ids"].numel() if read is None else int(read.sum())
    labels = inputs.get("labels")
    return tokens + (0 if labels is None else int((labels != -100).sum()))
