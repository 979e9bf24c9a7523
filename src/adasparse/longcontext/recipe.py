"""Recipes of long-context models: tasks and language models."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adasparse.longcontext.config import AttentionKind, LongContextConfig, PositionKind
from adasparse.longcontext.tasks import BOS, EOS, PAD, MultiQueryRecall, Task, find_task
from adasparse.training.recipe import MOST_TOKENS, Schedule, TrainingRecipe

#: Longest source that is scored in training; one beyond it takes hours.
MOST_LENGTH = 2**20


@dataclass(frozen=True, kw_only=True)
class LongContextRecipe(TrainingRecipe):
    """Settings that tasks and language models share beside those of ``TrainingRecipe``.

    Args:
        attention: A kind of ``LongContextConfig``.
        positions: A kind of ``LongContextConfig``.
        alpha: The alpha of entmax, or the initial value of a learned one.
        layers: Depth of the model.
        width: Size of the vectors between layers.
        heads: Heads of each attention.
        kv_heads: Heads of keys and values; as many if None.
        head_dim: Size of a head; the width divided by the heads if None.
        ffn: Size inside of the gated MLP.
        dropout: Dropout on the output of each sublayer.
        initializer_range: Standard deviation of the matrices at the start. Models 128 wide that
            start with 0.06 learn to find tokens by content much earlier.
        batch_size: Examples of a batch.
    """

    limits: ClassVar[Mapping[str, int]] = {**TrainingRecipe.limits, "layers": 1000}

    attention: AttentionKind = "asentmax"
    positions: PositionKind = "nape"
    alpha: float = 1.5
    layers: int = 2
    width: int = 256
    heads: int = 8
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int = 1024
    dropout: float = 0.0
    initializer_range: float = 0.02
    batch_size: int = 128
    learning_rate: float = 2e-4
    warmup_steps: int = 2000
    schedule: Schedule = "cosine"
    log_steps: int = 100
    keep: int = 2
    average: int = 0

    def own_mistakes(self) -> list[str]:
        """Return the mistakes in sizes and kinds."""
        return [*self.too_small({"batch_size": 1}), *self._model_mistakes()]

    def _model_mistakes(self) -> list[str]:
        try:
            self.model_config(vocab_size=1)
        except ValueError as error:
            text = str(error).rstrip(".")
            for theirs, ours in _NAMES.items():
                text = text.replace(theirs, ours)
            return [text]
        return []

    def parameters(self, vocab_size: int) -> int:
        """Return about how many parameters the model has."""
        groups = self.heads if self.kv_heads is None else self.kv_heads
        head_dim = self.width // self.heads if self.head_dim is None else self.head_dim
        attention = 2 * self.width * head_dim * (self.heads + groups)
        return self.layers * (attention + 3 * self.width * self.ffn) + vocab_size * self.width

    def model_config(self, **tokens: Any) -> LongContextConfig:
        """Return the configuration of the model for a vocabulary and special tokens."""
        return LongContextConfig(
            attention=self.attention,
            positions=self.positions,
            alpha=self.alpha,
            hidden_size=self.width,
            intermediate_size=self.ffn,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            dropout=self.dropout,
            initializer_range=self.initializer_range,
            **tokens,
        )


#: Names of a configuration and their names in recipes, the longest first.
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
        min_length: Length of the shortest source to train with; as published if None.
        max_length: Length of the longest; as published if None.
        eval_lengths: Lengths at which exact match is scored in training, on a set of examples of
            its own; the longest source and twice that if there are none.
        eval_examples: Number of examples at each length.
        look_alikes: Share of the training examples of MQMTAR whose keys, and values, differ in one
            letter only; see ``MultiQueryRecall``. Scores are of examples as published.
        few_queries_steps: Number of first updates in which its training examples ask for 1, 2, 3
            and 4 keys in turn; later ones, and all scores, are of 4, as published.
    """

    task: str
    min_length: int | None = None
    max_length: int | None = None
    eval_lengths: tuple[int, ...] = ()
    eval_examples: int = 128
    look_alikes: float = 0.0
    few_queries_steps: int = 0

    @property
    def training_task(self) -> Task:
        """The task whose examples are trained with."""
        task = find_task(self.task)
        alike = self.look_alikes
        return replace(task, look_alikes=alike) if isinstance(task, MultiQueryRecall) else task

    @property
    def first_tasks(self) -> list[Task]:
        """Those of the batches of the first ``few_queries_steps`` updates, in turn."""
        task = self.training_task
        if not isinstance(task, MultiQueryRecall):
            return [task]
        return [replace(task, num_queries=i + 1) for i in range(task.num_queries)]

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
        """Lengths that are scored in training."""
        return self.eval_lengths or (self.lengths[1], 2 * self.lengths[1])

    def task_config(self) -> LongContextConfig:
        """Return the configuration of the model."""
        vocab_size = find_task(self.task).vocab_size
        return self.model_config(
            vocab_size=vocab_size, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS
        )

    def own_mistakes(self) -> list[str]:
        """Return the mistakes in the task and its lengths as well."""
        found = super().own_mistakes()
        try:
            find_task(self.task)
        except ValueError as error:
            return [*found, str(error).removeprefix("a ").rstrip(".")]
        shortest = find_task(self.task).shortest
        low, high = self.lengths
        if not shortest <= low <= high:
            found.append(
                f"min_length must be at least {shortest} for {self.task} and at most max_length; "
                f"got {low} and {high}"
            )
        if not all(shortest <= length <= MOST_LENGTH for length in self.eval_lengths):
            found.append(
                f"eval_lengths must be at least {shortest} for {self.task} and at most "
                f"{MOST_LENGTH:,}; got {list(self.eval_lengths)}"
            )
        if not isinstance(find_task(self.task), MultiQueryRecall):
            for name in ("look_alikes", "few_queries_steps"):
                if getattr(self, name):
                    found.append(f"{name} must be 0 for {self.task}; got {getattr(self, name)}")
        if not 0 <= self.look_alikes <= 1:
            found.append(f"look_alikes must be between 0 and 1; got {self.look_alikes}")
        return [*found, *self.too_small({"eval_examples": 1, "few_queries_steps": 0})]


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe(LongContextRecipe):
    """One training of a language model; the other settings are those of ``LongContextRecipe``.

    Args:
        data: A text file, plain or ``.gz``.
        vocab_size: Largest number of tokens; 256 of them are bytes, so that any text can be read.
        context: Tokens of an example.
        first_context: Tokens of an example in the first updates, if they are fewer: examples are
            cut into so long ones.
        first_context_steps: Number of those updates.
        dev_share: Share of the text, from its end, that is held out to score with.
        dev_tokens: Largest number of held-out tokens that are scored.
    """

    #: The text is compared by content.
    resumable: ClassVar[tuple[str, ...]] = (*TrainingRecipe.resumable, "data")
    scores: ClassVar[tuple[str, ...]] = ("loss", "perplexity")
    limits: ClassVar[Mapping[str, int]] = {**LongContextRecipe.limits, "vocab_size": MOST_TOKENS}

    data: str
    vocab_size: int = 8000
    context: int = 512
    first_context: int | None = None
    first_context_steps: int = 0
    dev_share: float = 0.02
    dev_tokens: int = 50_000

    def own_mistakes(self) -> list[str]:
        """Return the mistakes in the sizes of the text as well."""
        least = {"vocab_size": 257, "context": 2, "dev_tokens": 2, "first_context_steps": 0}
        found = [*super().own_mistakes(), *self.too_small(least)]
        first = self.first_context
        if first is not None and (first < 2 or self.context % first):
            found.append(
                f"first_context must be at least 2 and divide context, {self.context}; got {first}"
            )
        if (first is None) != (self.first_context_steps == 0):
            found.append(
                "first_context and first_context_steps must be given together; got "
                f"{first} and {self.first_context_steps}"
            )
        if not 0 < self.dev_share < 1:
            found.append(f"dev_share must be between 0 and 1; got {self.dev_share}")
        return found
