"""The base of all tasks: a vocabulary, examples of a length, batches of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adasparse.longcontext.tasks.streams import Words, below, draw, mix, words

Integers = NDArray[np.int64]
PaddingSide = Literal["left", "right"]

PAD, BOS, SEP, EOS = range(4)
SPECIAL_TOKENS = ("<pad>", "<bos>", "<sep>", "<eos>")
#: The first token that a task has for itself.
FIRST = len(SPECIAL_TOKENS)
#: Label of what is not to be predicted.
IGNORED = -100
#: Where no token holds the answer.
NOWHERE = -1
#: Stream of the lengths; those of the tasks count from 0.
_LENGTHS = -1


class Examples(NamedTuple):
    """Examples of one length, each ``(s, n)``; see ``TaskBatch``."""

    tokens: Integers
    labels: Integers
    relevant: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """Examples side by side.

    Args:
        input_ids: ``(b, n)``.
        attention_mask: ``(b, n)``, 1 for tokens and 0 for padding.
        labels: ``(b, n)``: what logits one place earlier are to predict, as models of transformers
            take it; -100 where nothing is asked.
        relevant: ``(b, n)``: for each label the place of the token that holds the answer; -1 where
            there is none.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    relevant: Tensor

    def model_inputs(self) -> dict[str, Tensor]:
        """Return what a model takes."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "labels": self.labels,
        }


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task that makes as many examples as wanted, of any length, from a seed.

    Example ``first + i`` of a seed is the same whatever the size of the batch, on every machine.
    """

    name: ClassVar[str]
    #: Lengths to train with, as published; tests are at multiples of 64.
    train_lengths: ClassVar[tuple[int, int]] = (32, 64)
    #: There is nothing to ask below this length.
    shortest: ClassVar[int] = 1

    @property
    @abstractmethod
    def own_tokens(self) -> tuple[str, ...]:
        """Names of the tokens after the special ones."""

    @abstractmethod
    def examples(self, keys: Words, length: int) -> Examples:
        """Return an example of this length for each key ``(s,)``."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of all tokens in the order of their ids."""
        return SPECIAL_TOKENS + self.own_tokens

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    def batch(
        self,
        seed: int,
        size: int,
        length: int | tuple[int, int],
        *,
        first: int = 0,
        padding_side: PaddingSide = "right",
    ) -> TaskBatch:
        """Return examples ``first`` to ``first + size`` of a seed.

        Args:
            seed: Any integer.
            size: ``b``, at least 1.
            length: Length of the source, or the shortest and the longest, between which each
                example draws its own.
            first: Where to begin among the examples of the seed.
            padding_side: Where shorter examples are filled up.
        """
        shortest, longest = (length, length) if isinstance(length, int) else length
        if not self.shortest <= shortest <= longest:
            raise ValueError(
                f"length must be at least {self.shortest} for {self.name}, a range from the "
                f"shortest to the longest; got {length}."
            )
        if size < 1 or first < 0:
            raise ValueError(f"size must be at least 1 and first 0; got {size} and {first}.")
        if padding_side not in ("left", "right"):
            raise ValueError(f'padding_side must be "left" or "right"; got {padding_side!r}.')
        keys = self._keys(seed, size, first)
        lengths = shortest + below(draw(keys, _LENGTHS, 1)[:, 0], longest - shortest + 1)
        parts = []
        for each in np.unique(lengths):
            rows = np.flatnonzero(lengths == each)
            parts.append((rows, self.examples(keys[rows], int(each))))
        return _collate(parts, size, padding_side)

    def _keys(self, seed: int, size: int, first: int) -> Words:
        """Return a random word for each example."""
        root: Words = mix(words(seed)) + words(crc32(self.name.encode()))
        numbers = np.arange(first, first + size).astype(np.uint64)
        return mix(mix(root) + numbers)


def _collate(
    parts: list[tuple[Integers, Examples]], size: int, padding_side: PaddingSide
) -> TaskBatch:
    """Put examples of several lengths into their rows."""
    width = max(part.tokens.shape[1] for _, part in parts)
    tokens = np.full((size, width), PAD, dtype=np.int64)
    mask = np.zeros_like(tokens)
    labels = np.full_like(tokens, IGNORED)
    relevant = np.full_like(tokens, NOWHERE)
    for rows, part in parts:
        n = part.tokens.shape[1]
        start = width - n if padding_side == "left" else 0
        columns = slice(start, start + n)
        tokens[rows, columns] = part.tokens
        mask[rows, columns] = 1
        labels[rows, columns] = part.labels
        relevant[rows, columns] = np.where(part.relevant == NOWHERE, NOWHERE, part.relevant + start)
    return TaskBatch(
        input_ids=torch.from_numpy(tokens),
        attention_mask=torch.from_numpy(mask),
        labels=torch.from_numpy(labels),
        relevant=torch.from_numpy(relevant),
    )


def source_and_target(source: Integers, target: Integers, answers: Integers) -> Examples:
    """Return BOS source SEP target EOS, of which the target and EOS are to be predicted.

    Args:
        source: ``(s, m)``.
        target: ``(s, t)``.
        answers: ``(s, t)``: which token of the source holds each of the target.
    """
    s, m = source.shape
    t = target.shape[1]
    tokens = np.empty((s, m + t + 3), dtype=np.int64)
    tokens[:, 0], tokens[:, m + 1], tokens[:, -1] = BOS, SEP, EOS
    tokens[:, 1 : m + 1] = source
    tokens[:, m + 2 : -1] = target
    labels = np.full_like(tokens, IGNORED)
    labels[:, m + 2 :] = tokens[:, m + 2 :]
    relevant = np.full_like(tokens, NOWHERE)
    relevant[:, m + 2 : -1] = answers + 1
    return Examples(tokens, labels, relevant)


def source_with_labels(source: Integers, labels: Integers, answers: Integers) -> Examples:
    """Return BOS source EOS, where each token of the source has a label of its own.

    A model reads the token and predicts its label where it would else predict the next token. So
    the label stands at the next place, for the last token at that of EOS.

    Args:
        source: ``(s, m)``.
        labels: ``(s, m)``, -100 for tokens without.
        answers: ``(s, m)``: which token of the source holds each label, -1 for none.
    """
    s, m = source.shape
    tokens = np.empty((s, m + 2), dtype=np.int64)
    tokens[:, 0], tokens[:, 1:-1], tokens[:, -1] = BOS, source, EOS
    shifted = np.full_like(tokens, IGNORED)
    shifted[:, 2:] = labels
    relevant = np.full_like(tokens, NOWHERE)
    relevant[:, 2:] = np.where(answers == NOWHERE, NOWHERE, answers + 1)
    return Examples(tokens, shifted, relevant)
