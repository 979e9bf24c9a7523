"""From a recipe and prepared data to a run: a Hugging Face folder with its log."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import Subset
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

from adasparse.integrations.huggingface import SparsityTrainerMixin
from adasparse.training import (
    BestModel,
    EngineMixin,
    ProgressBar,
    TokenBatches,
    TrainingLog,
    prepare_folder,
    run_training,
    training_arguments,
    write_recipe,
)
from adasparse.training.run import CHECKPOINTS
from adasparse.translation.data import PairDataset, PreparedData
from adasparse.translation.decode import translate
from adasparse.translation.finish import finish_run
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.score import score

LOG, RECIPE = "log.jsonl", "recipe.yaml"


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a training would do.

    Args:
        parameters: Of the model.
        pairs: Sentence pairs in the training data, without those too long for the model.
        batches_per_epoch: Batches that all pairs make.
        epochs: How often each pair would be seen.
        loss: Of the largest batch, with the first weights.
        seconds_per_step: Measured on that batch.
    """

    parameters: int
    pairs: int
    batches_per_epoch: int
    epochs: float
    loss: float
    seconds_per_step: float


class DevScorer:
    """Loss and translation scores on the development data of a run."""

    def __init__(self, data: PreparedData, recipe: TranslationRecipe) -> None:
        self.data, self.recipe = data, recipe
        self.collate = PairCollator(data.tokenizer.pad_token_id)

    @torch.no_grad()
    def loss(self, model: PreTrainedModel) -> float:
        """Return the mean negative log-probability of a token, without label smoothing."""
        was_training, total, tokens = model.training, 0.0, 0
        model.eval()
        batches = TokenBatches(
            pair_lengths(self.data.dev), max_tokens=self.recipe.batch_tokens, seed=0
        )
        for batch in batches:
            inputs = self.collate([self.data.dev[i] for i in batch])
            inputs = {name: x.to(model.device) for name, x in inputs.items()}
            labels = inputs.pop("labels")
            total += TokenLoss(0.0)(model(**inputs), labels, 1).item()
            tokens += int((labels != -100).sum())
        model.train(was_training)
        return total / tokens

    def scores(self, model: PreTrainedModel) -> dict[str, float]:
        """Return loss, BLEU and chrF."""
        found = translate(
            model, self.data.tokenizer, self.data.dev_source, beam=self.recipe.eval_beam
        )
        result = score([best[0].text for best in found], self.data.dev_target)
        return {"loss": self.loss(model), "bleu": result.bleu, "chrf": result.chrf}


class TranslationTrainer(EngineMixin, SparsityTrainerMixin, Seq2SeqTrainer):
    """Seq2SeqTrainer with the engine's batches and checkpoints, and scores of whole translations.

    Every process scores all development data, so that all of them decide alike.
    """

    def __init__(self, *args: Any, scorer: DevScorer, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scorer = scorer

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Score the development data."""
        found = self.scorer.scores(cast(PreTrainedModel, self.model))
        metrics = {f"eval_{name}": value for name, value in found.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


def pair_lengths(pairs: PairDataset) -> np.ndarray:
    """Return the length of the longer side of each pair ``(n,)``."""
    return np.maximum(pairs.source_lengths, pairs.target_lengths)


def train(
    recipe: TranslationRecipe,
    *,
    resume: bool = False,
    report: Callable[[str], None] = lambda message: None,
    progress: ProgressBar | None = None,
) -> Path:
    """Train a model; return the folder of the run, which loads with the Auto classes.

    Args:
        recipe: What to train.
        resume: Whether to go on with what is in the folder of the run.
        report: Gets messages for the user.
        progress: What shows how it goes; nothing if None.

    Raises:
        TrainingStopped: If it was interrupted; ``resume`` goes on from there.
    """
    data = open_data(recipe, report=report)
    arguments = build_arguments(recipe)
    output, is_first = Path(recipe.output), arguments.process_index == 0
    with arguments.main_process_first(local=False):
        checkpoint = prepare_folder(
            output,
            resume=resume or not is_first,
            report=report if is_first else lambda message: None,
        )
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    trainer = build_trainer(recipe, data, arguments)
    if is_first:
        write_recipe(recipe, output / RECIPE)
    trainer.add_callback(TrainingLog(output / LOG))
    if progress is not None:
        trainer.add_callback(progress)
    try:
        run_training(trainer, checkpoint)
    finally:
        if progress is not None:
            progress.close()
    trainer.accelerator.wait_for_everyone()
    if is_first:
        finish_run(
            cast(PreTrainedModel, trainer.model),
            recipe,
            data,
            trainer.scorer,
            best_step=trainer.best.step,
        )
    trainer.accelerator.wait_for_everyone()
    return output


def open_data(
    recipe: TranslationRecipe, *, report: Callable[[str], None] = lambda message: None
) -> PreparedData:
    """Return the data of a recipe; it tells of pairs that are too long for the model."""
    data = PreparedData.open(recipe.data)
    for name, pairs in (("training", data.train), ("development", data.dev)):
        count = int((pair_lengths(pairs) > recipe.max_positions).sum())
        if count and name == "development":
            raise ValueError(
                f"max_positions={recipe.max_positions} is too small for {count} of the "
                "development sentences; raise it, or prepare the data with a smaller limit."
            )
        if count:
            report(f"{count} training pairs are longer than max_positions and are left out.")
    return data


def build_arguments(recipe: TranslationRecipe) -> Seq2SeqTrainingArguments:
    """Return what a recipe says in the words of transformers."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(Path(recipe.output) / "tensorboard"))
    has_gpu = torch.cuda.is_available()
    return training_arguments(
        Seq2SeqTrainingArguments,
        output_dir=str(Path(recipe.output) / CHECKPOINTS),
        max_steps=recipe.max_steps,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
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


def build_trainer(
    recipe: TranslationRecipe, data: PreparedData, arguments: Seq2SeqTrainingArguments
) -> TranslationTrainer:
    """Return the trainer of a recipe, with a new model."""
    lengths = pair_lengths(data.train)
    fits = np.flatnonzero(lengths <= recipe.max_positions)
    return TranslationTrainer(
        model=build_model(recipe, data.tokenizer),
        args=arguments,
        train_dataset=Subset(data.train, fits.tolist()),
        eval_dataset=data.dev,
        processing_class=data.tokenizer,
        data_collator=PairCollator(data.tokenizer.pad_token_id),
        compute_loss_func=TokenLoss(recipe.label_smoothing),
        batches=TokenBatches(
            lengths[fits],
            max_tokens=recipe.batch_tokens,
            seed=recipe.seed,
            num_batches=recipe.max_steps * recipe.accumulate * arguments.world_size,
        ),
        keep=recipe.keep,
        best=BestModel(
            f"eval_{recipe.monitor}",
            is_better_high=recipe.monitor == "bleu",
            patience=recipe.patience,
        ),
        scorer=DevScorer(data, recipe),
    )


def dry_run(recipe: TranslationRecipe) -> DryRun:
    """Check data, model and one update of the weights, on the largest batch; write nothing."""
    data = open_data(recipe)
    data.verify()
    model = build_model(recipe, data.tokenizer).train()
    lengths = pair_lengths(data.train)
    fits = np.flatnonzero(lengths <= recipe.max_positions)
    batches = TokenBatches(lengths[fits], max_tokens=recipe.batch_tokens, seed=recipe.seed)
    largest = max(batches, key=lambda batch: len(batch) * lengths[fits[batch]].max())
    inputs = PairCollator(data.tokenizer.pad_token_id)([data.train[int(fits[i])] for i in largest])
    labels = inputs.pop("labels")
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    for _ in range(2):  # the first one warms up
        start = time.perf_counter()
        loss = TokenLoss(recipe.label_smoothing)(model(**inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds = (time.perf_counter() - start) * recipe.accumulate
    return DryRun(
        parameters=sum(x.numel() for x in model.parameters()),
        pairs=len(fits),
        batches_per_epoch=batches.per_epoch,
        epochs=recipe.max_steps * recipe.accumulate / batches.per_epoch,
        loss=loss.item(),
        seconds_per_step=seconds,
    )
