"""Training job of a translation model: prepared data, model, scores."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset
from transformers import PreTrainedModel, TrainingArguments

from adasparse.training import (
    BestModel,
    EngineTrainer,
    ProgressBar,
    Rehearsal,
    Results,
    TokenBatches,
    first_decides,
    fit,
)
from adasparse.training.fit import ignore
from adasparse.training.run_folder import TENSORBOARD, Identity, Report
from adasparse.translation.card import model_card
from adasparse.translation.data import PairDataset, PreparedData
from adasparse.translation.decode import translate
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.recipe import TranslationRecipe
from adasparse.translation.score import score


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


def pair_lengths(pairs: PairDataset) -> NDArray[np.int32]:
    """Return the length of the longer side of each pair ``(n,)``."""
    longer: NDArray[np.int32] = np.maximum(pairs.source_lengths, pairs.target_lengths)
    return longer


def train(
    recipe: TranslationRecipe,
    *,
    resume: bool = False,
    report: Report = ignore,
    progress: ProgressBar | None = None,
) -> Path:
    """Train a translation model; arguments, result and errors are those of ``training.fit``."""
    return fit(TranslationJob(recipe), resume=resume, report=report, progress=progress)


@dataclass(frozen=True)
class TranslationJob:
    """One training of a translation model.

    Args:
        recipe: Settings, among them the folder of the prepared data.
    """

    recipe: TranslationRecipe

    @cached_property
    def data(self) -> PreparedData:
        """The prepared data.

        Raises:
            ValueError: If files have changed since they were prepared, or if the development
                sentences or all training pairs are too long.
        """
        data, limit = PreparedData.open(self.recipe.data), self.recipe.max_positions
        first_decides(data.verify)
        shortest = int(pair_lengths(data.train).min())
        if shortest > limit:
            raise ValueError(
                f"max_positions={limit} is too small for all of the training pairs; "
                f"the shortest needs {shortest}."
            )
        count = int((pair_lengths(data.dev) > limit).sum())
        if count:
            raise ValueError(
                f"max_positions={limit} is too small for {count} of the development sentences; "
                "raise it, or prepare the data with a smaller limit."
            )
        return data

    @cached_property
    def fitting(self) -> NDArray[np.intp]:
        """Numbers ``(n,)`` of the training pairs that are not too long for the model."""
        return np.flatnonzero(pair_lengths(self.data.train) <= self.recipe.max_positions)

    def identity(self) -> Identity:
        """Return a hash of the content of the data."""
        files = json.dumps(self.data.manifest["files"], sort_keys=True)
        return {"content of data": hashlib.sha256(files.encode()).hexdigest()[:16]}

    def build_trainer(
        self, arguments: TrainingArguments, *, report: Report = ignore
    ) -> EngineTrainer:
        """Return the trainer, with a new model; report the pairs that are too long for it."""
        recipe, data = self.recipe, self.data
        left_out = len(data.train) - len(self.fitting)
        if left_out:
            report(f"{left_out} training pairs are longer than max_positions and are left out.")
        numbers: Any = self.fitting  # the types of PyTorch require a list
        return EngineTrainer(
            model=build_model(recipe, data.tokenizer),
            args=arguments,
            train_dataset=Subset(data.train, numbers),
            eval_dataset=data.dev,
            processing_class=data.tokenizer,
            data_collator=PairCollator(data.tokenizer.pad_token_id),
            compute_loss_func=TokenLoss(recipe.label_smoothing),
            batches=self._batches(recipe.max_steps * recipe.accumulate * arguments.world_size),
            keep=recipe.keep,
            best=BestModel(
                f"eval_{recipe.monitor}",
                is_better_high=recipe.monitor == "bleu",
                patience=recipe.patience,
            ),
            alpha_lr_factor=recipe.alpha_lr_factor,
            uses_muon=recipe.optimizer == "muon",
            tensorboard=Path(recipe.output) / TENSORBOARD,
            report=report,
            scorer=DevScorer(data, recipe),
        )

    def _batches(self, number: int | None = None) -> TokenBatches:
        return TokenBatches(
            pair_lengths(self.data.train)[self.fitting],
            max_tokens=self.recipe.batch_tokens,
            seed=self.recipe.seed,
            num_batches=number,
        )

    def model_card(self, model: PreTrainedModel, results: Results) -> str:
        """Return the text of the model card."""
        return model_card(model, self.recipe, self.data, results)

    def rehearsal(self) -> Rehearsal:
        """Return a new model and the batch with the most tokens."""
        recipe, data, batches = self.recipe, self.data, self._batches()
        lengths = pair_lengths(data.train)[self.fitting]
        largest = max(batches, key=lambda batch: len(batch) * int(lengths[batch].max()))
        pairs = [data.train[int(self.fitting[i])] for i in largest]
        return Rehearsal(
            model=build_model(recipe, data.tokenizer),
            inputs=PairCollator(data.tokenizer.pad_token_id)(pairs),
            loss=self._loss,
            sizes={
                "pairs": len(self.fitting),
                "batches_per_epoch": batches.per_epoch,
                "epochs": recipe.max_steps * recipe.accumulate / batches.per_epoch,
            },
        )

    def _loss(self, model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
        given = {name: x for name, x in inputs.items() if name != "labels"}
        logits = model(**given).logits.float()
        return TokenLoss(self.recipe.label_smoothing)({"logits": logits}, inputs["labels"])
