"""Pretrained models as subjects of an experiment: loading, batches, loss and measures."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

#: What a forward pass takes, and what its loss needs beside.
Batch = dict[str, Any]


class Subject(ABC):
    """A pretrained model, the text it is fine-tuned on, and the measures of its quality.

    Args:
        models: Folder of downloaded models.
        data: Folder of the corpora.
    """

    name: ClassVar[str]

    def __init__(self, models: Path, data: Path) -> None:
        self.models, self.data = models, data

    @abstractmethod
    def load(self) -> PreTrainedModel:
        """Return the model with softmax attention, in evaluation mode."""

    @abstractmethod
    def batch(self, step: int, seed: int, size: int) -> Batch:
        """Return the batch of a step of fine-tuning; the same one whenever it is asked for."""

    @abstractmethod
    def loss(self, model: PreTrainedModel, teacher: PreTrainedModel | None, batch: Batch) -> Tensor:
        """Return the loss of a batch."""

    @abstractmethod
    def measure(self, model: PreTrainedModel, limits: Mapping[str, int]) -> dict[str, Any]:
        """Return measures of quality, on so much text as ``limits`` says."""

    @abstractmethod
    def sample(self) -> Mapping[str, Tensor]:
        """Return inputs on which the density of heads is measured."""


def divergence(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of next-token distributions.

    Args:
        student: Logits ``(b, n, v)``.
        teacher: Logits ``(b, n, v)``.
        mask: ``(b, n)``: True where a token is predicted.
    """
    ours, theirs = (x[mask].float().log_softmax(-1) for x in (student, teacher))
    return (theirs.exp() * (theirs - ours)).sum(-1).mean()


@torch.no_grad()
def teacher_output(teacher: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Any:
    """Run a teacher without gradients."""
    return teacher(**inputs)
