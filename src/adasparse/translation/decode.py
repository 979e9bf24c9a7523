"""Translation by beam search."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from adasparse.translation.model import padded
from adasparse.translation.recipe import MOST_BEAMS


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


#: Numbers that a search may keep, of all its steps: those of one batch, over the vocabulary.
_MOST_NUMBERS = 2**28
#: Largest exponent of the length.
MOST_PENALTY = 10
#: Translation of an empty line.
EMPTY = Translation(text="", score=0.0, ids=())


def too_long(
    sentences: Sequence[str], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> dict[int, int]:
    """Return the numbers of sentences that are too long for a model, and their tokens."""
    limit = model.config.max_position_embeddings
    lengths = [len(ids) for ids in _encode(sentences, tokenizer)]
    return {i: length for i, length in enumerate(lengths) if length > limit}


def _encode(sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Return the tokens of each sentence; repeated ones are encoded once."""
    distinct = [*dict.fromkeys(sentences)]
    rows = tokenizer(distinct).input_ids if distinct else []
    ids = dict(zip(distinct, rows, strict=True))
    return [ids[text] for text in sentences]


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    *,
    beam: int = 5,
    n_best: int = 1,
    length_penalty: float = 1.0,
    batch_tokens: int = 8192,
    max_ratio: float = 2.0,
    on_done: Callable[[int], None] | None = None,
) -> list[list[Translation]]:
    """Return the ``n_best`` translations of each sentence, best first, by beam search.

    Sentences of about the same length are translated together, which does not change the result;
    it is in the order given. Repeated sentences are translated once. Blank sentences have one
    translation, the empty one.

    Args:
        model: An encoder-decoder; it is put into evaluation mode and back.
        tokenizer: Its tokenizer.
        sentences: In the source language, normalized as the training data were.
        beam: Hypotheses kept at each step; 1 is greedy.
        n_best: Number of hypotheses to return.
        length_penalty: Exponent of the length by which log-probabilities are divided.
        batch_tokens: Tokens of a batch of source sentences times beams, padding included.
        max_ratio: Translations end after this many times the tokens of their source, and ten.
        on_done: Called with the number of sentences after each batch.
    """
    if not 1 <= beam <= MOST_BEAMS:
        raise ValueError(f"beam must be between 1 and {MOST_BEAMS}; got {beam}.")
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must be at least 1 and at most beam={beam}; got {n_best}.")
    if not -MOST_PENALTY <= length_penalty <= MOST_PENALTY:
        raise ValueError(
            f"length_penalty must be between {-MOST_PENALTY} and {MOST_PENALTY}; "
            f"got {length_penalty}."
        )
    encoded, most = _encode(sentences, tokenizer), model.config.max_position_embeddings
    for i, ids in enumerate(encoded):
        if len(ids) > most:
            raise ValueError(f"Sentences may have {most} tokens; number {i + 1} has {len(ids)}.")
    results = [[EMPTY]] * len(sentences)
    blank = tokenizer("").input_ids  # also of a sentence that normalization leaves nothing of
    places: dict[str, list[int]] = {}
    for i, text in enumerate(sentences):
        if text.strip() and encoded[i] != blank:
            places.setdefault(text, []).append(i)
    limits = [min(int(max_ratio * len(ids)) + 10, most - 1) for ids in encoded]
    was_training = model.training
    model.eval()
    try:
        for batch in _batches(
            {x[0]: len(encoded[x[0]]) for x in places.values()},
            limits,
            batch_tokens=batch_tokens // beam,
            most_written=_MOST_NUMBERS // (beam * model.config.vocab_size),
        ):
            found = _translate_batch(
                model,
                tokenizer,
                [encoded[i] for i in batch],
                limits=[limits[i] for i in batch],
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
            )
            for first, translations in zip(batch, found, strict=True):
                for i in places[sentences[first]]:
                    results[i] = translations
            if on_done is not None:
                on_done(sum(len(places[sentences[i]]) for i in batch))
    finally:
        model.train(was_training)
    return results


def _batches(
    lengths: dict[int, int], limits: Sequence[int], *, batch_tokens: int, most_written: int
) -> Iterator[list[int]]:
    """Yield numbers of sentences of similar lengths, longest first, so that memory peaks first."""
    order = sorted(lengths, key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        longest = order[start]
        size = max(1, min(batch_tokens // lengths[longest], most_written // limits[longest]))
        yield order[start : start + size]
        start += size


class _EndAtLimit(LogitsProcessor):
    """Lets a sentence end when it has reached its own limit, whatever the others do."""

    def __init__(self, limits: Sequence[int], *, beam: int, eos: int, device: torch.device) -> None:
        self.limits = torch.tensor(limits, device=device).repeat_interleave(beam)
        self.first, self.eos = min(limits), eos

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave the end alone with its score, where the next token is the last."""
        length = input_ids.shape[1]  # with the start, so that of the text with the next token
        if length < self.first:
            return scores
        others = torch.ones(scores.shape[1], dtype=torch.bool, device=scores.device)
        others[self.eos] = False
        return scores.masked_fill((self.limits <= length)[:, None] & others, -torch.inf)


@torch.no_grad()
def _translate_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Sequence[int]],
    *,
    limits: Sequence[int],
    beam: int,
    n_best: int,
    length_penalty: float,
) -> list[list[Translation]]:
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    source = padded(rows, pad).to(model.device)
    ends = _EndAtLimit(limits, beam=beam, eos=eos, device=model.device)
    found = model.generate(  # type: ignore[operator]
        input_ids=source,
        attention_mask=(source != pad).long(),
        num_beams=beam,
        num_return_sequences=n_best,
        length_penalty=length_penalty,
        max_new_tokens=max(limits),
        max_length=None,
        do_sample=False,
        early_stopping=False,
        logits_processor=LogitsProcessorList([ends]),
        output_scores=beam > 1,
        output_logits=beam == 1,
        return_dict_in_generate=True,
    )
    sequences = found.sequences[:, 1:].cpu()
    if beam > 1:
        scores = found.sequences_scores.tolist()
    else:
        steps = model.compute_transition_scores(  # type: ignore[operator]
            found.sequences, found.logits, normalize_logits=True
        )
        written = (sequences != pad).sum(1)
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
