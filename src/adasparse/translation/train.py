"""From a recipe and prepared data to a run: a Hugging Face folder with its log."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    recipe_arguments,
    train_session,
)
from adasparse.translation.card import model_card
from adasparse.translation.data import PairDataset, PreparedData
from adasparse.translation.decode import translate
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.score import score

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
    """Seq2SeqTrainer with the engine's batches and checkpoints."""


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
    report = report if arguments.process_index == 0 else lambda message: None
    data = open_data(recipe, report=report)
    return train_session(
        recipe,
        lambda: build_trainer(recipe, data, arguments),
        card=lambda model, results: model_card(model, recipe, data, results),
        facts=training_facts(recipe, data, arguments.world_size),
        free=FREE,
        resume=resume,
        report=report,
        progress=progress,
    )


def training_facts(
    recipe: TranslationRecipe, data: PreparedData, world_size: int
) -> dict[str, Any]:
    """Return what makes two trainings the same beside their recipes."""
    files = json.dumps(data.manifest["files"], sort_keys=True)
    return {
        "content of data": hashlib.sha256(files.encode()).hexdigest()[:16],
        "accumulate times processes": recipe.accumulate * world_size,
    }


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
    return recipe_arguments(Seq2SeqTrainingArguments, recipe)


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
