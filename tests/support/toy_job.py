"""A job of ten lines of model, for tests of the engine alone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, TrainerCallback
from transformers.modeling_outputs import CausalLMOutput

from adasparse.nn import LearnedAlpha
from adasparse.training import BestModel, EngineTrainer, Rehearsal, TokenBatches, TrainingRecipe

#: Lengths of the examples; example i holds the number i, as often as it is long.
LENGTHS = np.array([1, 2, 3, 4, 5, 6, 7, 8] * 3)


class ToyConfig(PretrainedConfig):
    model_type = "adasparse-toy"


class ToyModel(PreTrainedModel):
    """Learns one number for each example, with dropout and an exponent."""

    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(len(LENGTHS), 4)
        self.alpha = LearnedAlpha(2)
        self.post_init()

    def forward(self, input_ids, labels):
        x = nn.functional.dropout(self.table(input_ids), 0.5, training=self.training)
        return CausalLMOutput(loss=((x.mean(-1) - labels) ** 2).mean() + self.alpha().sum())


class ToyScorer:
    """Scores the mean of all weights."""

    def scores(self, model):
        return {"loss": sum(x.double().mean().item() for x in model.parameters())}


def collate(numbers):
    width = max(int(LENGTHS[i]) for i in numbers)
    rows = torch.tensor([[i] * width for i in numbers])
    return {"input_ids": rows, "labels": torch.full(rows.shape, 0.5)}


@dataclass(frozen=True)
class ToyJob:
    recipe: TrainingRecipe

    def identity(self):
        return {"content of data": "toy"}

    def build_model(self):
        torch.manual_seed(self.recipe.seed)
        return ToyModel(ToyConfig())

    def build_trainer(self, arguments, *, report=None):
        steps = self.recipe.max_steps * self.recipe.accumulate * arguments.world_size
        return EngineTrainer(
            model=self.build_model(),
            args=arguments,
            train_dataset=range(len(LENGTHS)),
            eval_dataset=range(len(LENGTHS)),
            data_collator=collate,
            batches=TokenBatches(LENGTHS, max_tokens=16, seed=self.recipe.seed, num_batches=steps),
            scorer=ToyScorer(),
            keep=self.recipe.keep,
            best=BestModel("eval_loss", is_better_high=False, patience=self.recipe.patience),
            alpha_lr_factor=self.recipe.alpha_lr_factor,
        )

    def model_card(self, model, results):
        return f"A toy, {results['model']}.\n"

    def rehearsal(self):
        return Rehearsal(
            model=self.build_model(),
            inputs=collate([7, 15]),
            loss=lambda model, inputs: model(**inputs).loss,
            sizes={"examples": len(LENGTHS)},
        )


def toy_job(output: Path, **changes: object) -> ToyJob:
    settings = {
        "max_steps": 8, "learning_rate": 0.01, "warmup_steps": 2, "log_steps": 2, "eval_steps": 4,
        "save_steps": 3, "average": 2, "threads": 1,
    }  # fmt: skip
    return ToyJob(TrainingRecipe(**{**settings, **changes}, output=str(output)))


class Watch(TrainerCallback):
    """Stands in for the progress bar; calls a function at the end of each step."""

    def __init__(self, action):
        self.action = action

    def on_step_end(self, args, state, control, **kwargs):
        self.action(state.global_step, kwargs)

    def close(self):
        pass
