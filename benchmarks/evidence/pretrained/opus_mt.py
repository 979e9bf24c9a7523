"""OPUS-MT zh→en, a translation model, measured by BLEU and chrF.

The package has the SentencePiece model of Chinese alone. English references are split into the
fewest pieces of the vocabulary instead: the decoder writes whole words where it has them, and the
pieces that the model of Chinese makes of them are none that it would ever write.
"""

import json
import random
from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar

import torch
from benchmarks.evidence.pretrained.ctranslate2 import read_marian
from benchmarks.evidence.pretrained.data import SentencePair, news_pairs
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
        self.longest_piece = max(map(len, self.vocabulary))
        self.pieces = SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
        self.train_pairs = news_pairs(self.data, "train")

    def load(self) -> PreTrainedModel:
        model: PreTrainedModel = MarianMTModel.from_pretrained(self.folder)
        return model.eval()

    def encode_source(self, text: str) -> list[int]:
        return self._ids(self.pieces.encode(text, out_type=str))

    def encode_target(self, text: str) -> list[int]:
        return self._ids(fewest_pieces("▁" + "▁".join(text.split()), self.ids, self.longest_piece))

    def _ids(self, pieces: Sequence[str]) -> list[int]:
        unknown = self.ids["<unk>"]
        kept = pieces[: _LONGEST - 1]
        return [*(self.ids.get(piece, unknown) for piece in kept), self.ids["</s>"]]

    def decode(self, tokens: Sequence[int]) -> str:
        pieces = [self.vocabulary[i] for i in tokens if i < len(self.vocabulary)]
        return "".join(x for x in pieces if x != "</s>").replace("▁", " ").strip()

    def _inputs(self, sources: Sequence[str]) -> dict[str, Tensor]:
        padding = len(self.vocabulary)
        input_ids = _padded([self.encode_source(text) for text in sources], padding)
        return {"input_ids": input_ids, "attention_mask": (input_ids != padding).long()}

    def _pairs(self, pairs: Sequence[SentencePair]) -> Batch:
        labels = _padded([self.encode_target(pair.target) for pair in pairs], _IGNORED)
        return {**self._inputs([pair.source for pair in pairs]), "labels": labels}

    def batch(self, step: int, seed: int, size: int) -> Batch:
        # Every epoch has each pair once, in an order of its own.
        per_epoch = len(self.train_pairs) // size
        epoch, place = divmod(step, per_epoch)
        order = list(range(len(self.train_pairs)))
        random.Random(f"{seed} {epoch}").shuffle(order)
        return self._pairs([self.train_pairs[i] for i in order[place * size : (place + 1) * size]])

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
        return self._pairs(news_pairs(self.data, "test")[::30])


def fewest_pieces(text: str, known: Container[str], longest: int) -> list[str]:
    """Split text into as few known pieces as possible; unknown characters are pieces of their own.

    Of several ways, the one whose last pieces are longest.
    """
    ends = [(0, 0)]  # (number of pieces, start of the last one) of the text up to each place
    for end in range(1, len(text) + 1):
        starts = range(max(0, end - longest), end)
        ways = [(ends[i][0] + 1, i) for i in starts if text[i:end] in known]
        ends.append(min(ways, default=(ends[end - 1][0] + 1, end - 1)))
    pieces, end = [], len(text)
    while end:
        start = ends[end][1]
        pieces.append(text[start:end])
        end = start
    return pieces[::-1]


def _padded(rows: Sequence[list[int]], value: int) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)
