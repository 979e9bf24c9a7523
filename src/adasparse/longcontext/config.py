"""Configuration of a long-context model."""

from typing import Any, Literal, get_args

from transformers import PreTrainedConfig

AttentionKind = Literal[
    "softmax",
    "ssmax",
    "adaptive-temperature",
    "entmax",
    "asentmax",
    "adaptive",
    "asentmax-adaptive",
]
PositionKind = Literal["rope", "nope", "alibi", "nape"]

#: Their weights are those of softmax, whatever ``alpha`` says.
DENSE_KINDS = ("softmax", "ssmax", "adaptive-temperature")
#: Each head learns its own alpha.
LEARNED_KINDS = ("adaptive", "asentmax-adaptive")
#: Queries are multiplied with a factor that grows with the number of keys, and this is its formula.
LENGTH_SCALES: dict[str, Literal["ssmax", "adaptive"]] = {
    "ssmax": "ssmax",
    "asentmax": "adaptive",
    "asentmax-adaptive": "adaptive",
}


class LongContextConfig(PreTrainedConfig):
    """Sizes of a decoder-only model, its attention and its positions.

    Args:
        attention: ``"softmax"``; ``"ssmax"``, softmax of scores that grow with the logarithm of the
            length; ``"adaptive-temperature"``, softmax that is sharpened by its own entropy when
            the model is not in training; ``"entmax"`` with a fixed ``alpha``; ``"asentmax"``, which
            scales scores by length as it learns to; ``"adaptive"``, entmax with an alpha learned by
            each head; ``"asentmax-adaptive"``, both of these.
        positions: ``"rope"`` rotates queries and keys, ``"alibi"`` lowers the scores of distant
            keys, ``"nope"`` does nothing, ``"nape"`` is ALiBi with slopes 1, 1/2, 1/3 … in the
            first half of the heads and nothing in the others. Under NAPE only the others are
            scaled by length.
        alpha: That of entmax; where it is learned, what it starts from.
        vocab_size: Number of tokens.
        hidden_size: Width of the model.
        intermediate_size: Width inside of the gated MLP.
        num_hidden_layers: Depth.
        num_attention_heads: Heads of queries.
        num_key_value_heads: Heads of keys and values, a divisor of that; as many if None.
        head_dim: Size of a head; the width divided by the heads of queries if None.
        rope_theta: Base of the wavelengths of RoPE.
        dropout: Share of the outputs of attention and MLP to drop in training.
        rms_norm_eps: Added to mean squares.
        initializer_range: Standard deviation of matrices at the start.
        tie_word_embeddings: Whether the matrix that reads tokens also predicts them.
        use_cache: Whether to keep keys and values, where the call does not say.
        pad_token_id: Token of the padding.
        bos_token_id: First token.
        eos_token_id: Last token.

    Example:
        >>> config = LongContextConfig(attention="asentmax", positions="nape", vocab_size=32)
        >>> config.head_dim
        32
    """

    model_type = "adasparse-longcontext"
    keys_to_ignore_at_inference = ("past_key_values",)

    attention: AttentionKind = "asentmax"
    positions: PositionKind = "nape"
    alpha: float = 1.5
    vocab_size: int = 256
    hidden_size: int = 256
    intermediate_size: int = 1024
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rope_theta: float = 10000.0
    dropout: float = 0.0
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Complete and check the values."""
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        problems = self._problems()
        if problems:
            raise ValueError("; ".join(problems) + ".")
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        super().__post_init__(**kwargs)

    def _problems(self) -> list[str]:
        """Say of each value that cannot be what it must be and what it is."""
        found = []
        for name, kinds in (("attention", AttentionKind), ("positions", PositionKind)):
            if getattr(self, name) not in get_args(kinds):
                given = getattr(self, name)
                found.append(f"{name} must be one of {list(get_args(kinds))}; got {given!r}")
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            *(() if self.head_dim is None else ("head_dim",)),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                found.append(f"{name} must be an integer of at least 1; got {value!r}")
        return found or [*self._head_problems(), *self._number_problems()]

    def _head_problems(self) -> list[str]:
        found = []
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        head_dim = self.hidden_size // heads if self.head_dim is None else self.head_dim
        if self.head_dim is None and self.hidden_size % heads:
            found.append(
                "num_attention_heads must divide hidden_size if head_dim is not given; "
                f"got {heads} and {self.hidden_size}"
            )
        elif self.positions == "rope" and head_dim % 2:
            found.append(f"rope, which rotates pairs, requires heads of even size; got {head_dim}")
        assert groups is not None
        if heads % groups:
            found.append(
                f"num_key_value_heads must divide num_attention_heads; got {groups} and {heads}"
            )
        return found

    def _number_problems(self) -> list[str]:
        found = []
        if self.attention in LEARNED_KINDS and not 1 < self.alpha < 2:
            found.append(f"alpha must start strictly between 1 and 2; got {self.alpha}")
        elif not 1 <= self.alpha < float("inf"):
            found.append(f"alpha must be at least 1 and finite; got {self.alpha}")
        if not 0 <= self.dropout < 1:
            found.append(f"dropout must be from 0 to below 1; got {self.dropout}")
        if not 0 < self.initializer_range <= 1:
            found.append(
                f"initializer_range must be above 0 and at most 1; got {self.initializer_range}"
            )
        if not self.rope_theta > 0:
            found.append(f"rope_theta must be positive; got {self.rope_theta}")
        return found
