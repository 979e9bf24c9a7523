"""Base recipe: the settings that every kind of training shares, with their checks."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, get_args

#: Beginning of every message about a recipe.
MISTAKES = "The recipe has mistakes: "
#: Largest value of a setting that is an integer; more is a slip of the keyboard.
MOST = 10**9
#: Largest learning rate and weight decay; with more, the first step leaves nothing of the weights.
MOST_RATE = 1000
#: Largest vocabulary to learn: tokenizers reserves the memory of all of it, or ends the process.
MOST_TOKENS = 10**6

Schedule = Literal["inverse-sqrt", "linear", "cosine"]
OptimizerName = Literal["adamw", "muon"]


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """Settings that all trainings share, checked on construction.

    Args:
        output: Folder of the run, new or empty.
        max_steps: Number of updates of the weights.
        accumulate: Batches per update and process.
        optimizer: ``"adamw"``; or ``"muon"``, which is AdamW but for the matrices between the
            layers: those Muon, which needs PyTorch 2.9, updates by orthogonal matrices. Small
            models learn retrieval in half the updates with it.
        learning_rate: Peak learning rate, reached after ``warmup_steps``.
        alpha_lr_factor: Factor on the learning rate for learned values of alpha. It has no effect
            where alpha is fixed.
        warmup_steps: Number of updates over which the learning rate rises linearly from 0.
        schedule: Decay of the learning rate after the warm-up: ``"inverse-sqrt"`` of the step;
            ``"linear"`` or ``"cosine"`` reach zero at the last step.
        weight_decay: Weight decay of all weights but biases, norms and alpha.
        max_grad_norm: Norm to which longer gradients are clipped.
        adam_beta2: Second momentum of Adam; the first one is 0.9. That of Muon is 0.95.
        seed: Seed of initial weights, dropout and the order of the data.
        log_steps: Updates between lines of the log.
        eval_steps: Updates between evaluations on development data. The best one is saved.
        save_steps: Updates between checkpoints.
        keep: Number of checkpoints kept beside the best.
        patience: Evaluations without a better score after which training ends; 0 for never.
        average: Number of last checkpoints to average in the end. The model of the run is that
            average, the last or the best checkpoint, whichever scores best on development data.
        bf16: Whether to compute in bfloat16 where autocast does.
        threads: CPU threads; PyTorch's default if None.
        workers: Number of processes that prepare batches.
    """

    #: Settings that may differ when a training is resumed.
    resumable: ClassVar[tuple[str, ...]] = (
        *("max_steps", "log_steps", "eval_steps", "save_steps", "keep", "patience", "average"),
        *("threads", "workers", "output", "accumulate"),
    )

    #: Names of scores that the results of a run have.
    scores: ClassVar[tuple[str, ...]] = ()

    #: Largest values of settings that must be smaller than ``MOST``; NumPy limits seeds.
    limits: ClassVar[Mapping[str, int]] = {"seed": 2**32 - 1, "threads": 1024, "workers": 1024}

    output: str
    max_steps: int = 100_000
    accumulate: int = 1
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 7e-4
    alpha_lr_factor: float = 1.0
    warmup_steps: int = 4000
    schedule: Schedule = "inverse-sqrt"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    adam_beta2: float = 0.98
    seed: int = 1
    log_steps: int = 50
    eval_steps: int = 1000
    save_steps: int = 1000
    keep: int = 5
    patience: int = 0
    average: int = 5
    bf16: bool = False
    threads: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        """Report all mistakes at once."""
        mistakes = [*self._too_large(), *self._training_mistakes(), *self.own_mistakes()]
        if mistakes:
            raise ValueError(f"{MISTAKES}{'; '.join(mistakes)}.")

    def own_mistakes(self) -> list[str]:
        """Return the mistakes in settings that one kind of training alone has."""
        return []

    def too_small(self, least: Mapping[str, int]) -> list[str]:
        """Return a message for each setting below its least value."""
        return [
            f"{name} must be at least {low}; got {getattr(self, name)}"
            for name, low in least.items()
            if getattr(self, name) < low
        ]

    def _too_large(self) -> list[str]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return [
            f"{name} must be at most {self.limits.get(name, MOST):,}; got {value}"
            for name, value in values.items()
            if isinstance(value, int) and value > self.limits.get(name, MOST)
        ]

    def _training_mistakes(self) -> list[str]:
        steps = ("max_steps", "accumulate", "log_steps", "eval_steps", "save_steps")
        counts = ("warmup_steps", "patience", "average", "workers", "seed")
        found = self.too_small({**dict.fromkeys(steps, 1), **dict.fromkeys(counts, 0), "keep": 2})
        if self.threads is not None:
            found += self.too_small({"threads": 1})
        if self.average > self.keep:
            found.append(
                "keep must be at least average, whose checkpoints it keeps; "
                f"got keep={self.keep} and average={self.average}"
            )
        for name, choices in {"schedule": Schedule, "optimizer": OptimizerName}.items():
            if getattr(self, name) not in get_args(choices):
                found.append(
                    f"{name} must be one of {', '.join(get_args(choices))}; "
                    f"got {getattr(self, name)!r}"
                )
        if not 0 < self.learning_rate <= MOST_RATE:
            found.append(
                f"learning_rate must be above 0 and at most {MOST_RATE:,}; got {self.learning_rate}"
            )
        if not 0 < self.max_grad_norm < float("inf"):
            found.append(f"max_grad_norm must be above 0 and finite; got {self.max_grad_norm}")
        for name, most in {"weight_decay": MOST_RATE, "alpha_lr_factor": MOST}.items():
            if not 0 <= getattr(self, name) <= most:
                found.append(f"{name} must be between 0 and {most:,}; got {getattr(self, name)}")
        if not 0 < self.adam_beta2 < 1:
            found.append(f"adam_beta2 must be between 0 and 1; got {self.adam_beta2}")
        return found
