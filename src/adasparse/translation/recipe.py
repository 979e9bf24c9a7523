"""What a translation model is and how it is trained."""

from dataclasses import dataclass
from typing import Literal, get_args

from adasparse.integrations.huggingface import SparsityConfig
from adasparse.training.recipe import MISTAKES, Schedule, too_small, training_mistakes

Attention = Literal["softmax", "entmax", "adaptive"]
#: Fields whose values are among a few words.
CHOICES = {"attention": get_args(Attention), "monitor": ("bleu", "loss")}


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe:
    """One training of a translation model, checked on construction.

    Args:
        data: Folder that ``adasparse prepare`` wrote.
        output: Folder of the run, new or empty.
        attention: ``"softmax"``; ``"entmax"`` with alpha fixed; or ``"adaptive"``, with one learned
            alpha per head, layer and attention type.
        alpha: The fixed alpha, or where a learned one starts.
        tie_heads: Whether the heads of a layer share one learned alpha.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        width: Size of the vectors between layers.
        heads: Heads of each attention.
        ffn: Size of the hidden layer between attentions.
        max_positions: Tokens of the longest sentence the model can read or write.
        dropout: On embeddings and on what each sublayer adds.
        attention_dropout: On attention weights.
        activation_dropout: Inside the feed-forward layers.
        max_steps: Updates of the weights.
        batch_tokens: Tokens of a batch, of the longer side, padding included.
        accumulate: Batches per update and process.
        learning_rate: The highest; it rises to it for ``warmup_steps`` and falls from there.
        warmup_steps: See ``learning_rate``.
        schedule: How the learning rate falls: with the inverse square root of the step, as in the
            paper, or to zero at the last step, on a line or half a cosine, for short trainings.
        label_smoothing: Share of the target that is spread over the vocabulary.
        weight_decay: Of all weights but biases, norms and alpha.
        max_grad_norm: Longer gradients are cut to this length.
        adam_beta2: Of Adam; its beta1 is 0.9.
        seed: Of initial weights, dropout and the order of the data.
        log_steps: Updates between lines of the log.
        eval_steps: Updates between evaluations on development data; each saves if it is the best.
        save_steps: Updates between checkpoints.
        keep: Checkpoints kept beside the best.
        monitor: Which score on development data decides: ``"bleu"`` or ``"loss"``.
        patience: Evaluations without a better score until training ends; 0 for never.
        eval_beam: Beams of the translations that are scored in training.
        average: How many of the last checkpoints to average in the end. The model of the run is
            that average or the best checkpoint, whichever scores better on development data.
        bf16: Whether to compute in bfloat16 where autocast does.
        threads: Threads of the CPU; what PyTorch takes if None.
        workers: Processes that prepare batches.
    """

    data: str
    output: str
    attention: Attention = "adaptive"
    alpha: float = 1.5
    tie_heads: bool = False
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    heads: int = 8
    ffn: int = 2048
    max_positions: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    max_steps: int = 100_000
    batch_tokens: int = 4096
    accumulate: int = 1
    learning_rate: float = 7e-4
    warmup_steps: int = 4000
    schedule: Schedule = "inverse-sqrt"
    label_smoothing: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    adam_beta2: float = 0.98
    seed: int = 1
    log_steps: int = 50
    eval_steps: int = 1000
    save_steps: int = 1000
    keep: int = 5
    monitor: Literal["bleu", "loss"] = "bleu"
    patience: int = 0
    eval_beam: int = 1
    average: int = 5
    bf16: bool = False
    threads: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        mistakes = [*self._size_mistakes(), *training_mistakes(self), *self._own_mistakes()]
        if mistakes:
            raise ValueError(f"{MISTAKES}{'; '.join(mistakes)}.")

    def _size_mistakes(self) -> list[str]:
        sizes = ("encoder_layers", "decoder_layers", "width", "heads", "ffn")
        least = dict.fromkeys((*sizes, "batch_tokens", "eval_beam"), 1)
        found = too_small(self, {**least, "max_positions": 8})
        if not found and (self.width % self.heads or self.width % 2):
            found.append(
                "width must be even and a multiple of heads; "
                f"got width={self.width} and heads={self.heads}"
            )
        return found

    def _own_mistakes(self) -> list[str]:
        found = []
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                got = getattr(self, name)
                found.append(f"{name} must be one of {', '.join(choices)}; got {got!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                found.append(f"{name} must be in [0, 1); got {getattr(self, name)}")
        try:
            self.sparsity()
        except ValueError as error:
            found.append(str(error).replace("init_alpha", "alpha").rstrip("."))
        return found

    def sparsity(self) -> SparsityConfig | None:
        """Return how attention is made sparse; None for softmax."""
        if self.attention == "softmax":
            return None
        if self.attention == "entmax":
            return SparsityConfig(alpha="fixed", init_alpha=self.alpha)
        return SparsityConfig(alpha="learned", init_alpha=self.alpha, tie_heads=self.tie_heads)
