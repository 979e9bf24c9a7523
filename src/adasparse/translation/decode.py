"""Sentences in, translations out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adasparse.translation.model import padded


@dataclass(frozen=True, kw_only=True)
class Translation:
    """One translation.

    Args:
        text: The sentence.
        score: Log-probability, divided by the length to the power of the length penalty.
        ids: Its tokens, without the start.
    """

    text: str
    score: float
    ids: tuple[int, ...]


#: What an empty line becomes.
EMPTY = Translation(text="", score=0.0, ids=())


def too_long(
    sentences: Sequence[str], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> dict[int, int]:
    """Return the numbers of sentences that are too long for a model, and their tokens."""
    limit = model.config.max_position_embeddings
    lengths = {i: len(ids) for i, ids in enumerate(_encode(sentences, tokenizer))}
    return {i: length for i, length in lengths.items() if length > limit}


def _encode(sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    return tokenizer(list(sentences)).input_ids if sentences else []


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    *,
    beam: int = 5,
    n_best: int = 1,
    length_penalty: float = 1.0,
    batch_tokens: int = 2048,
    max_ratio: float = 2.0,
    on_done: Callable[[int], None] | None = None,
) -> list[list[Translation]]:
    """Return the ``n_best`` translations of each sentence, best first, by beam search.

    Sentences of about the same length are translated together; the result is in the order given.
    Blank sentences have one translation, the empty one.

    Args:
        model: An encoder-decoder; it is put into evaluation mode and back.
        tokenizer: Its tokenizer.
        sentences: In the source language, normalized as the training data were.
        beam: Hypotheses kept at each step; 1 is greedy.
        n_best: How many of them to return.
        length_penalty: Exponent of the length by which log-probabilities are divided.
        batch_tokens: Tokens of a batch of source sentences times beams, padding included.
        max_ratio: Translations end after this many times the tokens of the source, and a few.
        on_done: Called with the number of sentences after each batch.
    """
    if n_best > beam:
        raise ValueError(f"n_best must be at most beam={beam}; got {n_best}.")
    longest = too_long(sentences, model, tokenizer)
    if longest:
        i, length = next(iter(longest.items()))
        raise ValueError(
            f"Sentences may have {model.config.max_position_embeddings} tokens; "
            f"number {i + 1} has {length}."
        )
    results = [[EMPTY]] * len(sentences)
    wanted = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    encoded = _encode([sentences[i] for i in wanted], tokenizer)
    was_training = model.training
    model.eval()
    try:
        for batch in _batches([len(ids) for ids in encoded], batch_tokens // beam):
            rows = [encoded[j] for j in batch]
            found = _translate_batch(
                model,
                tokenizer,
                rows,
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
                max_ratio=max_ratio,
            )
            for j, translations in zip(batch, found, strict=True):
                results[wanted[j]] = translations
            if on_done is not None:
                on_done(len(batch))
    finally:
        model.train(was_training)
    return results


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield numbers of sentences of similar lengths, longest first, so that memory peaks first."""
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // lengths[order[start]])
        yield order[start : start + size]
        start += size


@torch.no_grad()
def _translate_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Sequence[int]],
    *,
    beam: int,
    n_best: int,
    length_penalty: float,
    max_ratio: float,
) -> list[list[Translation]]:
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    source = padded(rows, pad).to(model.device)
    limit = min(int(max_ratio * source.shape[1]) + 10, model.config.max_position_embeddings - 1)
    found = model.generate(  # type: ignore[operator]
        input_ids=source,
        attention_mask=(source != pad).long(),
        num_beams=beam,
        num_return_sequences=n_best,
        length_penalty=length_penalty,
        max_new_tokens=limit,
        max_length=None,
        do_sample=False,
        early_stopping=False,
        output_scores=beam == 1,
        return_dict_in_generate=True,
    )
    sequences = found.sequences[:, 1:].cpu()
    if beam > 1:
        scores = found.sequences_scores.tolist()
    else:
        steps = model.compute_transition_scores(  # type: ignore[operator]
            found.sequences, found.scores, normalize_logits=True
        )
        written = (sequences != pad).sum(1).clamp(min=1)
        total = steps.cpu().masked_fill(sequences == pad, 0).sum(1)
        scores = (total / written**length_penalty).tolist()
    texts = tokenizer.batch_decode(sequences, skip_special_tokens=True)
    translations = [
        Translation(text=text, score=score, ids=tuple(_until(row, eos, pad)))
        for text, score, row in zip(texts, scores, sequences.tolist(), strict=True)
    ]
    return [translations[i : i + n_best] for i in range(0, len(translations), n_best)]


def _until(row: Sequence[int], eos: int, pad: int) -> list[int]:
    """Cut a row after its end."""
    ids = list(row)
    return ids[: ids.index(eos) + 1] if eos in ids else [x for x in ids if x != pad]
