"""OPUS-MT zh→en, a translation model, measured by BLEU and chrF."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from benchmarks.evidence.pretrained.ctranslate2 import read_marian
from benchmarks.evidence.pretrained.data import news_pairs
from benchmarks.evidence.pretrained.packages import fetch
from benchmarks.evidence.pretrained.subject import Batch, Subject, divergence, teacher_output
from benchmarks.evidence.scores import score
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianMTModel, PreTrainedModel

#: Weight of the teacher's distribution in the loss, next to that of the references.
_DISTILLED = 0.5
_IGNORED = -100
_LONGEST = 128


class OpusMT(Subject):
    """Fine-tuned on a part of newstest2018, with the softmax model as teacher."""

    name: ClassVar[str] = "opus-mt"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        from sentencepiece import SentencePieceProcessor

        folder = fetch(self.name, self.models).parent / "converted"
        if not (folder / "config.json").is_file():
            model, vocabulary, pieces = read_marian(fetch(self.name, self.models))
            folder.mkdir(exist_ok=True)
            (folder / "sentencepiece.model").write_bytes(pieces)
            (folder / "vocabulary.json").write_text(json.dumps(vocabulary), encoding="utf-8")
            model.save_pretrained(folder)
        self.folder = folder
        self.vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        self.ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self.pieces = SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
        self.train_pairs = news_pairs(self.data, "train")

    def load(self) -> PreTrainedModel:
        model: PreTrainedModel = MarianMTModel.from_pretrained(self.folder)
        return model.eval()

    def encode(self, text: str) -> list[int]:
        pieces = self.pieces.encode(text, out_type=str)[: _LONGEST - 1]
        unknown = self.ids["<unk>"]
        return [*(self.ids.get(piece, unknown) for piece in pieces), self.ids["</s>"]]

    def decode(self, tokens: Sequence[int]) -> str:
        pieces = [self.vocabulary[i] for i in tokens if i < len(self.vocabulary)]
        return "".join(x for x in pieces if x != "</s>").replace("▁", " ").strip()

    def _padded(self, rows: Sequence[str], value: int) -> Tensor:
        tokens = [torch.tensor(self.encode(row)) for row in rows]
        return pad_sequence(tokens, batch_first=True, padding_value=value)

    def _inputs(self, sources: Sequence[str]) -> dict[str, Tensor]:
        padding = len(self.vocabulary)
        input_ids = self._padded(sources, padding)
        return {"input_ids": input_ids, "attention_mask": (input_ids != padding).long()}

    def batch(self, step: int, seed: int, size: int) -> Batch:
        # Every epoch has each pair once, in an order of its own.
        per_epoch = len(self.train_pairs) // size
        epoch, place = divmod(step, per_epoch)
        order = list(range(len(self.train_pairs)))
        random.Random(f"{seed} {epoch}").shuffle(order)
        pairs = [self.train_pairs[i] for i in order[place * size : (place + 1) * size]]
        labels = self._padded([x.target for x in pairs], _IGNORED)
        return {**self._inputs([x.source for x in pairs]), "labels": labels}

    def loss(self, model: PreTrainedModel, teacher: PreTrainedModel | None, batch: Batch) -> Tensor:
        logits = model(**batch).logits
        labels = batch["labels"]
        loss = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=_IGNORED)
        if teacher is None:
            return loss
        wanted = teacher_output(teacher, batch).logits
        distance = divergence(logits, wanted, labels != _IGNORED)
        return (1 - _DISTILLED) * loss + _DISTILLED * distance

    @torch.no_grad()
    def measure(self, model: PreTrainedModel, limits: Mapping[str, int]) -> dict[str, Any]:
        pairs = news_pairs(self.data, "test")
        pairs = pairs[:: max(1, len(pairs) // limits["sentences"])][: limits["sentences"]]
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))
        hypotheses = [""] * len(pairs)
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            found = model.generate(
                **self._inputs([pairs[i].source for i in rows]),
                num_beams=1,
                do_sample=False,
                max_new_tokens=_LONGEST,
            )
            for i, tokens in zip(rows, found.tolist(), strict=True):
                hypotheses[i] = self.decode(tokens)
        return score(hypotheses, [pair.target for pair in pairs])

    def sample(self) -> Mapping[str, Tensor]:
        pairs = news_pairs(self.data, "test")[::30]
        labels = self._padded([x.target for x in pairs], _IGNORED)
        return {**self._inputs([x.source for x in pairs]), "labels": labels}
