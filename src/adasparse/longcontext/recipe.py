"""What a long-context model is and how it is trained."""

from dataclasses import dataclass
from typing import Any

from adasparse.longcontext.config import AttentionKind, LongContextConfig, PositionKind
from adasparse.longcontext.tasks import BOS, EOS, PAD, find_task
from adasparse.training.recipe import MISTAKES, Schedule, too_small, training_mistakes


@dataclass(frozen=True, kw_only=True)
class LongContextRecipe:
    """What trainings of tasks and of language models have in common, checked on construction.

    Args:
        output: Folder of the run, new or empty.
        attention: A kind of ``LongContextConfig``.
        positions: A kind of ``LongContextConfig``.
        alpha: That of entmax, or where a learned one starts.
        layers: Depth of the model.
        width: Size of the vectors between layers.
        heads: Heads of each attention.
        kv_heads: Heads of keys and values; as many if None.
        ffn: Size inside of the gated MLP.
        dropout: On what each sublayer adds.
        max_steps: Updates of the weights.
        batch_size: Examples of a batch.
        accumulate: Batches per update and process.
        learning_rate: The highest; it rises to it for ``warmup_steps`` and falls from there.
        warmup_steps: See ``learning_rate``.
        schedule: How the learning rate falls: with the inverse square root of the step, or to zero
            at the last step, on a line or half a cosine.
        weight_decay: Of all weights but biases, norms and alpha.
        max_grad_norm: Longer gradients are cut to this length.
        adam_beta2: Of Adam; its beta1 is 0.9.
        seed: Of initial weights, dropout and data.
        log_steps: Updates between lines of the log.
        eval_steps: Updates between evaluations on development data; each saves if it is the best.
        save_steps: Updates between checkpoints.
        keep: Checkpoints kept beside the best.
        patience: Evaluations without a better score until training ends; 0 for never.
        average: How many of the last checkpoints to average in the end. The model of the run is
            that average, the last or the best checkpoint, whichever scores best.
        bf16: Whether to compute in bfloat16 where autocast does.
        threads: Threads of the CPU; what PyTorch takes if None.
        workers: Processes that prepare batches.
    """

    output: str
    attention: AttentionKind = "asentmax"
    positions: PositionKind = "nape"
    alpha: float = 1.5
    layers: int = 2
    width: int = 256
    heads: int = 8
    kv_heads: int | None = None
    ffn: int = 1024
    dropout: float = 0.0
    max_steps: int = 100_000
    batch_size: int = 128
    accumulate: int = 1
    learning_rate: float = 2e-4
    warmup_steps: int = 2000
    schedule: Schedule = "cosine"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    adam_beta2: float = 0.98
    seed: int = 1
    log_steps: int = 100
    eval_steps: int = 1000
    save_steps: int = 1000
    keep: int = 2
    patience: int = 0
    average: int = 0
    bf16: bool = False
    threads: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        """Tell all mistakes at once."""
        mistakes = [
            *too_small(self, {"batch_size": 1}),
            *training_mistakes(self),
            *self._model_mistakes(),
            *self._own_mistakes(),
        ]
        if mistakes:
            raise ValueError(f"{MISTAKES}{'; '.join(mistakes)}.")

    def _own_mistakes(self) -> list[str]:
        """Say what is wrong with the settings that one kind of training alone has."""
        return []

    def _model_mistakes(self) -> list[str]:
        try:
            self.model_config(vocab_size=1)
        except ValueError as error:
            text = str(error).rstrip(".")
            for theirs, ours in _NAMES.items():
                text = text.replace(theirs, ours)
            return [text]
        return []

    def model_config(self, **tokens: Any) -> LongContextConfig:
        """Return the configuration of the model, whose vocabulary and special tokens are given."""
        return LongContextConfig(
            attention=self.attention,
            positions=self.positions,
            alpha=self.alpha,
            hidden_size=self.width,
            intermediate_size=self.ffn,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            dropout=self.dropout,
            **tokens,
        )


#: What settings of a model are called in recipes, the longest names first.
_NAMES = {
    "num_key_value_heads": "kv_heads",
    "num_attention_heads": "heads",
    "num_hidden_layers": "layers",
    "intermediate_size": "ffn",
    "hidden_size": "width",
}


@dataclass(frozen=True, kw_only=True)
class TaskRecipe(LongContextRecipe):
    """One training on a task; the other settings are those of ``LongContextRecipe``.

    Args:
        task: Name of the task; ``sort-8`` is Sort with an alphabet of 8.
        min_length: Of the shortest source to train with; as published if None.
        max_length: Of the longest; as published if None.
        eval_lengths: Where exact match is scored in training, on a set of examples of its own; the
            longest source and twice that if there are none.
        eval_examples: How many of them at each length.
    """

    task: str
    min_length: int | None = None
    max_length: int | None = None
    eval_lengths: tuple[int, ...] = ()
    eval_examples: int = 128

    @property
    def lengths(self) -> tuple[int, int]:
        """Shortest and longest source to train with."""
        shortest, longest = find_task(self.task).train_lengths
        return (
            shortest if self.min_length is None else self.min_length,
            longest if self.max_length is None else self.max_length,
        )

    @property
    def dev_lengths(self) -> tuple[int, ...]:
        """Where to score in training."""
        return self.eval_lengths or (self.lengths[1], 2 * self.lengths[1])

    def task_config(self) -> LongContextConfig:
        """Return the configuration of the model."""
        vocab_size = find_task(self.task).vocab_size
        return self.model_config(
            vocab_size=vocab_size, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS
        )

    def _own_mistakes(self) -> list[str]:
        try:
            find_task(self.task)
        except ValueError as error:
            return [str(error).removeprefix("a ").rstrip(".")]
        found = []
        shortest = find_task(self.task).shortest
        low, high = self.lengths
        if not shortest <= low <= high:
            found.append(
                f"min_length must be at least {shortest} for {self.task} and at most max_length; "
                f"got {low} and {high}"
            )
        if any(length < shortest for length in self.eval_lengths):
            found.append(
                f"eval_lengths must be at least {shortest} for {self.task}; "
                f"got {list(self.eval_lengths)}"
            )
        return [*found, *too_small(self, {"eval_examples": 1})]


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe(LongContextRecipe):
    """One training of a language model; the other settings are those of ``LongContextRecipe``.

    Args:
        data: A text file, plain or ``.gz``.
        vocab_size: Largest number of tokens; 256 of them are bytes, so that any text can be read.
        context: Tokens of an example.
        dev_share: Share of the text, from its end, that is held out to score with.
        dev_tokens: How many tokens of it are scored at most.
    """

    data: str
    vocab_size: int = 8000
    context: int = 512
    dev_share: float = 0.02
    dev_tokens: int = 50_000

    def _own_mistakes(self) -> list[str]:
        found = too_small(self, {"vocab_size": 257, "context": 2, "dev_tokens": 2})
        if not 0 < self.dev_share < 1:
            found.append(f"dev_share must be between 0 and 1; got {self.dev_share}")
        return found
