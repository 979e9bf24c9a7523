"""SmolLM2-135M-Instruct, a language model, measured by perplexity and LAMBADA."""

import math
import random
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from benchmarks.evidence.pretrained.data import lambada, novel, wikitext
from benchmarks.evidence.pretrained.packages import fetch
from benchmarks.evidence.pretrained.subject import Batch, Subject, divergence, teacher_output
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

CONTEXT = 512
#: Weight of the teacher's distribution in the loss, next to that of the text.
_DISTILLED = 0.5


class SmolLM2(Subject):
    """Fine-tuned on novels: their next tokens, and the distribution of the softmax model."""

    name: ClassVar[str] = "smollm2"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.file = fetch(self.name, self.models)
        self.tokenizer = AutoTokenizer.from_pretrained(self.file.parent, gguf_file=self.file.name)

    def load(self) -> PreTrainedModel:
        folder = self.file.parent / "converted"
        if not (folder / "config.json").is_file():
            read = AutoModelForCausalLM.from_pretrained(
                self.file.parent, gguf_file=self.file.name, dtype=torch.float32
            )
            # A model read from GGUF counts as quantized, and those are not saved.
            config = type(read.config)(**read.config.to_diff_dict())
            if hasattr(config, "quantization_config"):
                del config.quantization_config
            model = AutoModelForCausalLM.from_config(config)
            model.load_state_dict(read.state_dict())
            model.save_pretrained(folder)
        loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return loaded.eval()

    def tokens(self, text: str) -> Tensor:
        """Return the tokens of a text of any length, paragraph by paragraph."""
        lines = [f"{line}\n" for line in text.split("\n")]
        found = self.tokenizer(lines, add_special_tokens=False)["input_ids"]
        return torch.tensor([token for line in found for token in line])

    @cached_property
    def train_tokens(self) -> Tensor:
        path = self.file.parent / "novels.pt"
        if not path.is_file():
            torch.save(self.tokens(novel(self.data, "train")), path)
        loaded: Tensor = torch.load(path, weights_only=True)
        return loaded

    def batch(self, step: int, seed: int, size: int) -> Batch:
        rng = random.Random(f"{seed} {step}")
        starts = [rng.randrange(len(self.train_tokens) - CONTEXT) for _ in range(size)]
        return {"input_ids": torch.stack([self.train_tokens[x : x + CONTEXT] for x in starts])}

    def loss(self, model: PreTrainedModel, teacher: PreTrainedModel | None, batch: Batch) -> Tensor:
        logits = model(**batch, use_cache=False).logits
        target = batch["input_ids"][:, 1:]
        loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), target.flatten())
        if teacher is None:
            return loss
        wanted = teacher_output(teacher, {**batch, "use_cache": False}).logits
        mask = torch.ones_like(target, dtype=torch.bool)
        distance = divergence(logits[:, :-1], wanted[:, :-1], mask)
        return (1 - _DISTILLED) * loss + _DISTILLED * distance

    @torch.no_grad()
    def measure(self, model: PreTrainedModel, limits: Mapping[str, int]) -> dict[str, Any]:
        texts = {"novel": novel(self.data, "test"), "wikitext": wikitext(self.data)}
        found: dict[str, Any] = {
            f"{name}_loss": self._text_loss(model, text, limits["tokens"])
            for name, text in texts.items()
            if limits["tokens"]
        }
        if limits["passages"]:
            found["lambada"] = 100 * self._lambada(model, limits["passages"])
        return found

    def _text_loss(self, model: PreTrainedModel, text: str, count: int) -> float:
        """Return the mean loss over windows of the context, from the beginning of a text."""
        tokens = self.tokens(text[: 8 * count])[:count]
        losses = []
        for start in range(0, len(tokens) - CONTEXT + 1, CONTEXT):
            window = tokens[None, start : start + CONTEXT]
            logits = model(window, use_cache=False).logits[0, :-1].float()
            losses.append(cross_entropy(logits, window[0, 1:]).item())
        return math.fsum(losses) / len(losses)

    def _lambada(self, model: PreTrainedModel, count: int) -> float:
        """Return the share of passages whose last word is the most likely one, token by token."""
        passages = lambada(self.data)
        right = 0
        for text, word in passages[:: max(1, len(passages) // count)][:count]:
            start = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            end = self.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
            logits = model(torch.tensor([start + end[:-1]]), use_cache=False).logits[0]
            right += logits[-len(end) :].argmax(-1).tolist() == end
        return right / count

    def sample(self) -> Mapping[str, Tensor]:
        tokens = self.tokens(novel(self.data, "test")[: 16 * CONTEXT])[: 2 * CONTEXT]
        return {"input_ids": tokens.reshape(2, CONTEXT)}
