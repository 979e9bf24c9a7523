"""all-MiniLM-L6-v2, a model of sentence embeddings, measured by STS-B."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from benchmarks.evidence.pretrained.data import distillation_sentences, some, sts_pairs
from benchmarks.evidence.pretrained.packages import fetch
from benchmarks.evidence.pretrained.subject import Batch, Subject, teacher_output
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

_LONGEST = 128


class MiniLM(Subject):
    """Fine-tuned to embed sentences as the model with softmax does, without labels."""

    name: ClassVar[str] = "minilm"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.folder = fetch(self.name, self.models)
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        self.sentences = distillation_sentences(self.data)

    def load(self) -> PreTrainedModel:
        model: PreTrainedModel = AutoModel.from_pretrained(self.folder, add_pooling_layer=False)
        return model.eval()

    def encode(self, sentences: Sequence[str]) -> dict[str, Tensor]:
        options = {"padding": True, "truncation": True, "max_length": _LONGEST}
        return dict(self.tokenizer(list(sentences), return_tensors="pt", **options))

    def batch(self, step: int, seed: int, size: int) -> Batch:
        return self.encode(some(self.sentences, size, random.Random(f"{seed} {step}")))

    def loss(self, model: PreTrainedModel, teacher: PreTrainedModel | None, batch: Batch) -> Tensor:
        assert teacher is not None
        wanted = embed(teacher_output(teacher, batch), batch)
        # Half the squared distance of unit vectors: 1 minus their cosine.
        return (embed(model(**batch), batch) - wanted).square().sum(-1).mean() / 2

    @torch.no_grad()
    def measure(self, model: PreTrainedModel, limits: Mapping[str, int]) -> dict[str, Any]:
        pairs = sts_pairs(self.data, "dev")[: limits["pairs"]]
        sides = [self._embeddings(model, [pair[i] for pair in pairs]) for i in (1, 2)]
        cosine = (sides[0] * sides[1]).sum(-1).numpy()
        return {"spearman": 100 * spearman(cosine, np.array([pair.score for pair in pairs]))}

    def _embeddings(self, model: PreTrainedModel, sentences: Sequence[str]) -> Tensor:
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        found = torch.empty(len(sentences), model.config.hidden_size)
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            batch = self.encode([sentences[i] for i in rows])
            found[rows] = embed(model(**batch), batch).float()
        return found

    def sample(self) -> Mapping[str, Tensor]:
        return self.encode([pair.first for pair in sts_pairs(self.data, "dev")[::15]])


def embed(output: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return unit vectors: the mean over the tokens of each sentence."""
    mask = batch["attention_mask"][..., None].to(output.last_hidden_state.dtype)
    mean = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
    return normalize(mean.float(), dim=-1)


def spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the correlation of ranks, those of ties being averaged."""
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[place]
    return ranks
