"""From a recipe and prepared data to a run: a Hugging Face folder with its log."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    TrainingStopped,
    first_decides,
    prepare_folder,
    run_training,
    training_arguments,
)
from adasparse.training.checkpoints import checkpoint_step, is_disk_error
from adasparse.training.folder import CHECKPOINTS
from adasparse.translation.data import PairDataset, PreparedData
from adasparse.translation.decode import translate
from adasparse.translation.finish import finish_run, is_finished
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.score import score

LOG = "log.jsonl"
#: What may be another when a training goes on. Data and batches per update are compared by content.
FREE = (
    *("max_steps", "log_steps", "eval_steps", "save_steps", "keep", "patience", "average"),
    *("threads", "workers", "output", "data", "accumulate"),
)


class DevScorer:
    """Loss and translation scores on the development data of a run."""

    def __init__(self, data: PreparedData, recipe: TranslationRecipe) -> None:
        self.data, self.recipe = data, recipe
        self.collate = PairCollator(data.tokenizer.pad_token_id)
        self.batches = TokenBatches(pair_lengths(data.dev), max_tokens=recipe.batch_tokens, seed=0)

    @torch.no_grad()
    def loss(self, model: PreTrainedModel) -> float:
        """Return the mean negative log-probability of a token, without label smoothing."""
        was_training, total, tokens = model.training, 0.0, 0
        model.eval()
        for batch in self.batches:
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

    The first process scores for all of them, so that they decide alike.
    """

    def __init__(self, *args: Any, scorer: DevScorer, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scorer = scorer

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Score the development data."""
        found = first_decides(lambda: self.scorer.scores(cast(PreTrainedModel, self.model)))
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
    arguments = build_arguments(recipe)
    is_first = arguments.process_index == 0
    report = report if is_first else lambda message: None
    data = open_data(recipe, report=report)
    output = Path(recipe.output)
    checkpoint = first_decides(
        lambda: prepare_folder(
            output,
            recipe,
            facts=training_facts(recipe, data, arguments.world_size),
            free=FREE,
            resume=resume,
            report=report,
        )
    )
    with thread_limit(recipe.threads):
        trainer = build_trainer(recipe, data, arguments)
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
            first_decides(lambda: _finish(trainer, recipe, data, report))
    return output


def training_facts(
    recipe: TranslationRecipe, data: PreparedData, world_size: int
) -> dict[str, Any]:
    """Return what makes two trainings the same beside their recipes."""
    files = json.dumps(data.manifest["files"], sort_keys=True)
    return {
        "content of data": hashlib.sha256(files.encode()).hexdigest()[:16],
        "accumulate times processes": recipe.accumulate * world_size,
    }


@contextmanager
def thread_limit(number: int | None) -> Iterator[None]:
    """Use that many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _finish(
    trainer: TranslationTrainer,
    recipe: TranslationRecipe,
    data: PreparedData,
    report: Callable[[str], None],
) -> None:
    # Scored as it will be used, not in the precision of training.
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    try:
        finish_run(model, recipe, data, trainer.scorer, best_step=trainer.best.step, report=report)
    except Exception as error:
        if not is_disk_error(error):
            raise
        raise TrainingStopped(
            f"Training is done, but its model could not be written: {error}. "
            f"Make room where {recipe.output} is."
        ) from error


def open_data(
    recipe: TranslationRecipe, *, report: Callable[[str], None] = lambda message: None
) -> PreparedData:
    """Return the data of a recipe; it tells of pairs that are too long for the model."""
    data = PreparedData.open(recipe.data)
    if int(pair_lengths(data.train).min()) > recipe.max_positions:
        raise ValueError(
            f"max_positions={recipe.max_positions} is too small for all of the training pairs; "
            f"the shortest needs {pair_lengths(data.train).min()}."
        )
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
    has_gpu = torch.cuda.is_available()
    return training_arguments(
        Seq2SeqTrainingArguments,
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


def build_trainer(
    recipe: TranslationRecipe, data: PreparedData, arguments: Seq2SeqTrainingArguments
) -> TranslationTrainer:
    """Return the trainer of a recipe, with a new model."""
    lengths = pair_lengths(data.train)
    fits: Any = np.flatnonzero(lengths <= recipe.max_positions)
    return TranslationTrainer(
        model=build_model(recipe, data.tokenizer),
        args=arguments,
        train_dataset=Subset(data.train, fits),
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
        tensorboard=Path(recipe.output) / "tensorboard",
        scorer=DevScorer(data, recipe),
    )
