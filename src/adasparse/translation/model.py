"""Marian's encoder-decoder of transformers with the attention of a recipe, and its loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, PreTrainedModel, PreTrainedTokenizerFast

from adasparse.functional import entmax_loss
from adasparse.integrations.huggingface import sparsify
from adasparse.training.memory import check_parameters
from adasparse.translation.recipe import TranslationRecipe


def build_model(recipe: TranslationRecipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Return a new model; the same seed gives the same weights, whatever the attention."""
    check_parameters(recipe.parameters(len(tokenizer)))
    torch.manual_seed(recipe.seed)
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=recipe.width,
        encoder_layers=recipe.encoder_layers,
        decoder_layers=recipe.decoder_layers,
        encoder_attention_heads=recipe.heads,
        decoder_attention_heads=recipe.heads,
        encoder_ffn_dim=recipe.ffn,
        decoder_ffn_dim=recipe.ffn,
        max_position_embeddings=recipe.max_positions,
        dropout=recipe.dropout,
        attention_dropout=recipe.attention_dropout,
        activation_dropout=recipe.activation_dropout,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
        use_cache=False,  # a forward pass would copy keys and values; generation has its own
    )
    config._attn_implementation = "sdpa"
    model = MarianMTModel(config)
    model.generation_config.use_cache = True
    # No sentence contains padding.
    model.generation_config.suppress_tokens = [tokenizer.pad_token_id]
    model.generation_config.num_beams = 5
    model.generation_config.max_length = recipe.max_positions
    sparsity = recipe.sparsity()
    if sparsity is not None:
        sparsify(model, sparsity)
    return model


class PairCollator:
    """Makes pairs of token ids into a padded batch.

    Args:
        pad: Token that fills up, and that the decoder starts with.
    """

    def __init__(self, pad: int) -> None:
        self.pad = pad

    def __call__(self, pairs: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
        """Return ``input_ids`` and ``attention_mask`` ``(b, k)``, ``labels`` ``(b, q)``."""
        source = padded([pair["input_ids"] for pair in pairs], self.pad)
        lengths = torch.tensor([len(pair["input_ids"]) for pair in pairs])
        target = padded([pair["labels"] for pair in pairs], -100)
        start = torch.full((len(pairs), 1), self.pad)
        shifted = torch.cat([start, target[:, :-1]], 1).masked_fill_(target == -100, self.pad)
        return {
            "input_ids": source,
            "attention_mask": (torch.arange(source.shape[1]) < lengths.unsqueeze(1)).long(),
            "decoder_input_ids": shifted,
            "labels": target,
        }


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Return rows of token ids as one ``(b, n)`` tensor, filled up on the right."""
    result = torch.full((len(rows), max(map(len, rows))), fill)
    for i, row in enumerate(rows):
        result[i, : len(row)] = torch.tensor(row)
    return result


class TokenLoss:
    """Cross entropy with label smoothing, summed over tokens and divided by those of the update.

    Dividing by the tokens of all batches of an update makes accumulation, and several processes,
    equal to one large batch.
    """

    def __init__(self, label_smoothing: float) -> None:
        self.label_smoothing = label_smoothing

    def __call__(
        self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Return the loss; without a number of tokens, that of this batch."""
        total = entmax_loss(  # at alpha 1 cross entropy, and faster than PyTorch's
            outputs["logits"].flatten(0, 1),
            labels.flatten(),
            alpha=1.0,
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )
        return total / (
            (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
        )
