"""Training job of a language model: a text, its tokens, perplexity."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainingArguments

from adasparse._files import file_hash
from adasparse.longcontext.card import language_card
from adasparse.longcontext.memory import check_batch
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.perplexity import perplexity_by_length
from adasparse.longcontext.recipe import LanguageRecipe
from adasparse.longcontext.tasks import IGNORED
from adasparse.longcontext.text import Blocks, Tokens, open_tokens, read_text, write_tokens
from adasparse.longcontext.train import model_loss
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
from adasparse.training.loading import load_tokenizer
from adasparse.training.memory import check_parameters
from adasparse.training.run_folder import TENSORBOARD, Identity, Report

#: Tokens of the text, in the folder of a run.
TOKENS = "tokens"


def collate_blocks(blocks: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the inputs of a model; the first token of a block is not predicted."""
    input_ids = torch.stack(list(blocks))
    labels = input_ids.clone()
    labels[:, 0] = IGNORED
    return {"input_ids": input_ids, "labels": labels}


class LanguageTrainer(EngineTrainer):
    """Trainer whose first updates may see shorter examples.

    Args:
        first_context: Tokens of these examples.
        first_context_steps: Number of these updates.
    """

    def __init__(
        self, *args: Any, first_context: int | None, first_context_steps: int, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._first_context, self._first_context_steps = first_context, first_context_steps

    def training_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Train on one micro-batch, cut into shorter examples at first."""
        if self.state.global_step < self._first_context_steps:
            inputs = collate_blocks(list(inputs["input_ids"].view(-1, self._first_context)))
        return super().training_step(model, inputs, *args, **kwargs)


class LanguageScorer:
    """Loss and perplexity of held-out text, in windows as long as the examples of training."""

    def __init__(self, tokens: Tokens, recipe: LanguageRecipe) -> None:
        self.tokens, self.recipe = tokens, recipe

    def scores(self, model: PreTrainedModel) -> dict[str, float]:
        """Return loss and perplexity."""
        was_training = model.training
        model.eval()
        found = perplexity_by_length(
            cast(LongContextForCausalLM, model),
            self.tokens,
            [self.recipe.context],
            train_length=self.recipe.context,
            max_tokens=self.recipe.dev_tokens,
        )
        model.train(was_training)
        if not found["lengths"]:
            raise ValueError(f"There is no memory to score: {found['stopped']}.")
        return {name: found["lengths"][0][name] for name in ("loss", "perplexity")}


def train_language(
    recipe: LanguageRecipe,
    *,
    resume: bool = False,
    report: Report = ignore,
    progress: ProgressBar | None = None,
) -> Path:
    """Train a language model; arguments, result and errors are those of ``training.fit``."""
    return fit(LanguageJob(recipe), resume=resume, report=report, progress=progress)


@dataclass(frozen=True)
class LanguageJob:
    """One training of a language model on a text file.

    Args:
        recipe: Settings, among them the file.
    """

    recipe: LanguageRecipe

    def identity(self) -> Identity:
        """Return a hash of the text file."""
        data = self.recipe.data
        if not Path(data).is_file():
            raise ValueError(f"data must be a text file; there is no file {data}.")
        return {"content of data": file_hash(data)[:16]}

    def build_trainer(
        self, arguments: TrainingArguments, *, report: Report = ignore
    ) -> EngineTrainer:
        """Return the trainer, with a new model; write the tokens to the folder of the run."""
        recipe, folder = self.recipe, Path(self.recipe.output) / TOKENS
        first_decides(
            lambda: write_tokens(
                folder,
                recipe.data,
                vocab_size=recipe.vocab_size,
                context=recipe.context,
                dev_share=recipe.dev_share,
            )
        )
        tokenizer = cast(PreTrainedTokenizerFast, load_tokenizer(folder, PreTrainedTokenizerFast))
        blocks = Blocks(open_tokens(folder, "train"), recipe.context)
        return LanguageTrainer(
            first_context=recipe.first_context,
            first_context_steps=recipe.first_context_steps,
            model=self._build_model(
                vocab_size=len(tokenizer),
                eos_token_id=tokenizer.eos_token_id,
                # Else a Trainer sets it when training starts, which a finished one does not.
                pad_token_id=tokenizer.pad_token_id,
            ),
            args=arguments,
            train_dataset=blocks,
            eval_dataset=blocks,
            processing_class=tokenizer,
            data_collator=collate_blocks,
            batches=TokenBatches(
                np.ones(len(blocks)),
                max_tokens=recipe.batch_size,
                seed=recipe.seed,
                num_batches=recipe.max_steps * recipe.accumulate * arguments.world_size,
            ),
            scorer=LanguageScorer(open_tokens(folder, "dev"), recipe),
            keep=recipe.keep,
            best=BestModel("eval_loss", is_better_high=False, patience=recipe.patience),
            alpha_lr_factor=recipe.alpha_lr_factor,
            uses_muon=recipe.optimizer == "muon",
            tensorboard=Path(recipe.output) / TENSORBOARD,
            report=report,
        )

    def _build_model(self, **tokens: int) -> LongContextForCausalLM:
        """Return a new model; the same seed gives the same weights."""
        check_parameters(self.recipe.parameters(tokens["vocab_size"]))
        config = self.recipe.model_config(**tokens)
        check_batch(config, self.recipe.batch_size * self.recipe.context)
        torch.manual_seed(self.recipe.seed)
        return LongContextForCausalLM(config)

    def model_card(self, model: PreTrainedModel, results: Results) -> str:
        """Return the text of the model card."""
        return language_card(self.recipe, results)

    def rehearsal(self) -> Rehearsal:
        """Return a new model and a batch of random tokens; read the text, which must be one."""
        recipe = self.recipe
        num_characters = len(read_text(recipe.data))
        model = self._build_model(vocab_size=recipe.vocab_size)
        tokens = torch.randint(recipe.vocab_size, (recipe.batch_size, recipe.context))
        return Rehearsal(
            model=model,
            inputs=collate_blocks(list(tokens)),
            loss=model_loss,
            sizes={
                "examples": recipe.max_steps * recipe.batch_size * recipe.accumulate,
                "characters": num_characters,
            },
        )
