"""From a recipe and a text to a language model."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainingArguments

from adasparse._files import file_hash
from adasparse._threads import thread_limit
from adasparse.longcontext.card import language_card
from adasparse.longcontext.dry_run import DryRun, rehearse
from adasparse.longcontext.model import LongContextForCausalLM
from adasparse.longcontext.perplexity import perplexity_by_length
from adasparse.longcontext.recipe import LanguageRecipe
from adasparse.longcontext.tasks import IGNORED
from adasparse.longcontext.text import Blocks, Tokens, open_tokens, write_tokens
from adasparse.longcontext.train import FREE as FREE_IN_TASKS
from adasparse.longcontext.train import LongContextTrainer, training_facts
from adasparse.training import (
    BestModel,
    ProgressBar,
    TokenBatches,
    check_folder,
    first_decides,
    recipe_arguments,
    train_session,
)

#: Tokens of the text, in the folder of a run.
TOKENS = "tokens"
#: What may be another when a training goes on. The text is compared by content.
FREE = (*FREE_IN_TASKS, "data")


def collate_blocks(blocks: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return what a model takes; the first token of a block is not predicted."""
    input_ids = torch.stack(list(blocks))
    labels = input_ids.clone()
    labels[:, 0] = IGNORED
    return {"input_ids": input_ids, "labels": labels}


class LanguageScorer:
    """Loss and perplexity of held-out text, in windows as long as the examples of training."""

    def __init__(self, tokens: Tokens, recipe: LanguageRecipe) -> None:
        self.tokens, self.recipe = tokens, recipe

    def scores(self, model: PreTrainedModel) -> dict[str, float]:
        """Return both."""
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
    arguments = recipe_arguments(TrainingArguments, recipe)
    return train_session(
        recipe,
        lambda: _build_trainer(recipe, arguments),
        card=lambda model, results: language_card(recipe, results),
        facts=_facts(recipe, arguments.world_size),
        free=FREE,
        resume=resume,
        report=report if arguments.process_index == 0 else lambda message: None,
        progress=progress,
    )


def dry_run_language(recipe: LanguageRecipe, *, resume: bool = False) -> DryRun:
    """Check folder, text and one update of the weights, on random tokens; nothing is written."""
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    facts = _facts(recipe, world_size)
    check_folder(recipe.output, recipe, facts=facts, free=FREE, resume=resume)
    torch.manual_seed(recipe.seed)
    model = LongContextForCausalLM(recipe.model_config(vocab_size=recipe.vocab_size))
    tokens = torch.randint(recipe.vocab_size, (recipe.batch_size, recipe.context))
    with thread_limit(recipe.threads):
        return rehearse(model, collate_blocks(list(tokens)), recipe, world_size=world_size)


def _facts(recipe: LanguageRecipe, world_size: int) -> dict[str, Any]:
    if not Path(recipe.data).is_file():
        raise ValueError(f"data must be a text file; there is no file {recipe.data}.")
    facts = training_facts(recipe, world_size)
    return {"content of data": file_hash(recipe.data)[:16], **facts}


def _build_trainer(recipe: LanguageRecipe, arguments: TrainingArguments) -> LongContextTrainer:
    folder = Path(recipe.output) / TOKENS
    first_decides(
        lambda: write_tokens(
            folder,
            recipe.data,
            vocab_size=recipe.vocab_size,
            context=recipe.context,
            dev_share=recipe.dev_share,
        )
    )
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    blocks = Blocks(open_tokens(folder, "train"), recipe.context)
    torch.manual_seed(recipe.seed)
    config = recipe.model_config(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    return LongContextTrainer(
        model=LongContextForCausalLM(config),
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
        tensorboard=Path(recipe.output) / "tensorboard",
    )
