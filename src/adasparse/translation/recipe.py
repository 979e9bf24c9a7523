"""Recipe of a translation model: its data, sizes and training settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from adasparse.integrations.huggingface import SparsityConfig
from adasparse.training.recipe import TrainingRecipe

Attention = Literal["softmax", "entmax", "adaptive"]
#: Largest number of beams of a search.
MOST_BEAMS = 256
#: Fields whose values are among a few words.
CHOICES = {"attention": get_args(Attention), "monitor": ("bleu", "loss")}


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(TrainingRecipe):
    """One training of a translation model; the other settings are those of ``TrainingRecipe``.

    Args:
        data: Folder that ``adasparse prepare`` wrote.
        attention: ``"softmax"``; ``"entmax"`` with alpha fixed; or ``"adaptive"``, with one learned
            alpha per head, layer and attention type.
        alpha: The fixed alpha, or the initial value of a learned one.
        tie_heads: Whether the heads of a layer share one learned alpha.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        width: Size of the vectors between layers.
        heads: Heads of each attention.
        ffn: Size of the hidden layer between attentions.
        max_positions: Tokens of the longest sentence the model can read or write.
        dropout: Dropout on embeddings and on the output of each sublayer.
        attention_dropout: Dropout on attention weights.
        activation_dropout: Dropout inside the feed-forward layers.
        batch_tokens: Tokens of a batch, of the longer side, padding included.
        label_smoothing: Share of the target that is spread over the vocabulary.
        monitor: Score on development data that decides: ``"bleu"`` or ``"loss"``.
        eval_beam: Beams of the translations that are scored in training.
    """

    #: The data are compared by content.
    resumable: ClassVar[tuple[str, ...]] = (*TrainingRecipe.resumable, "data")
    scores: ClassVar[tuple[str, ...]] = ("loss", "bleu", "chrf")
    limits: ClassVar[Mapping[str, int]] = {
        **TrainingRecipe.limits,
        **{"encoder_layers": 1000, "decoder_layers": 1000, "eval_beam": MOST_BEAMS},
    }

    data: str
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
    batch_tokens: int = 4096
    label_smoothing: float = 0.1
    monitor: Literal["bleu", "loss"] = "bleu"
    eval_beam: int = 1

    def own_mistakes(self) -> list[str]:
        """Return the mistakes in sizes, choices and probabilities."""
        found = self._size_mistakes()
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

    def _size_mistakes(self) -> list[str]:
        sizes = ("encoder_layers", "decoder_layers", "width", "heads", "ffn")
        least = dict.fromkeys((*sizes, "batch_tokens", "eval_beam"), 1)
        found = self.too_small({**least, "max_positions": 8})
        if not found and (self.width % self.heads or self.width % 2):
            found.append(
                "width must be even and a multiple of heads; "
                f"got width={self.width} and heads={self.heads}"
            )
        return found

    def parameters(self, vocab_size: int) -> int:
        """Return about how many parameters the model has, fixed positions included."""
        attention, ffn = 4 * self.width**2, 2 * self.width * self.ffn
        encoder = self.encoder_layers * (attention + ffn)
        decoder = self.decoder_layers * (2 * attention + ffn)
        return encoder + decoder + (vocab_size + 2 * self.max_positions) * self.width

    def sparsity(self) -> SparsityConfig | None:
        """Return the settings of sparse attention; None for softmax."""
        if self.attention == "softmax":
            return None
        if self.attention == "entmax":
            return SparsityConfig(alpha="fixed", init_alpha=self.alpha)
        return SparsityConfig(alpha="learned", init_alpha=self.alpha, tie_heads=self.tie_heads)
