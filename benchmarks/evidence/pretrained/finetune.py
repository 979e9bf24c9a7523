"""Fine-tuning from softmax to sparse attention, resumable after any step that was saved.

Variants: ``softmax`` is the control, the same fine-tuning without sparsity; ``fixed`` raises α from
1 to its end at an even pace over the first part of training and leaves it there; ``learned`` does
the same, and from then on every head learns its own. Dropout is off in all of them: a teacher's
distribution is to be matched, on text that is seen once or twice.
"""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from benchmarks.evidence.pretrained.heads import head_densities
from benchmarks.evidence.pretrained.subject import Subject
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel

from adasparse.integrations.huggingface import SparsityConfig, restore, set_step, sparsify
from adasparse.nn import parameter_groups

STATE, LOG = "state.pt", "log.jsonl"


class FineTuning:
    """A fine-tuning in progress.

    Args:
        subject: Model, text and measures.
        settings: ``variant``, ``alpha``, ``steps``, ``anneal_steps``, ``batch_size``,
            ``learning_rate``, ``alpha_learning_rate``, ``warmup_steps``, ``distill``, ``bf16`` and
            ``eval_steps``.
        limits: Amount of text to measure on in the course of training.
        seed: Seed of batches.
        folder: Folder of its checkpoint and log.
        save_seconds: Seconds between checkpoints.
    """

    def __init__(
        self,
        subject: Subject,
        settings: Mapping[str, Any],
        *,
        limits: Mapping[str, int],
        seed: int,
        folder: Path,
        save_seconds: float = 300,
    ) -> None:
        self.subject, self.settings, self.limits = subject, settings, limits
        self.seed, self.folder, self.save_seconds = seed, folder, save_seconds
        self.model = subject.load()
        self.teacher = subject.load() if settings["distill"] else None
        self.variant, self.step = settings["variant"], 0
        if self.variant != "softmax":
            anneal = {"final_alpha": settings["alpha"], "anneal_steps": settings["anneal_steps"]}
            sparsify(self.model, SparsityConfig(alpha="annealed", **anneal))
        self._prepare()
        if (folder / STATE).is_file():
            self._resume(torch.load(folder / STATE, weights_only=True))

    @property
    def _learns_alpha(self) -> bool:
        return self.variant == "learned" and self.step >= self.settings["anneal_steps"]

    def _prepare(self) -> None:
        """Make a new optimizer."""
        groups = parameter_groups(self.model, weight_decay=0.0)
        for group in groups:
            group["lr"] = self.settings["learning_rate"]
        if self._learns_alpha:
            groups[-1]["lr"] = self.settings["alpha_learning_rate"]
        self.optimizer = AdamW(groups, betas=(0.9, 0.99))
        self.scheduler = LambdaLR(self.optimizer, self._rate, last_epoch=-1)

    def _rate(self, step: int) -> float:
        """Rise in a line, fall with half a cosine; ``step`` counts from the last preparation."""
        at = step + (self.settings["anneal_steps"] if self._learns_alpha else 0)
        rise = min(1.0, (at + 1) / self.settings["warmup_steps"])
        return rise * (1 + math.cos(math.pi * at / self.settings["steps"])) / 2

    def _let_learn(self) -> None:
        """Give every head an α of its own, from where annealing has ended."""
        restore(self.model)
        sparsify(self.model, SparsityConfig(alpha="learned", init_alpha=self.settings["alpha"]))
        before = self.optimizer.state_dict()["state"]
        self._prepare()
        state = self.optimizer.state_dict()
        # The weights come first in both, in the same order: their moments stay.
        self.optimizer.load_state_dict({**state, "state": before})

    def _resume(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        if self._learns_alpha and not state["is_switching"]:
            restore(self.model)
            sparsify(self.model, SparsityConfig(alpha="learned", init_alpha=self.settings["alpha"]))
            self._prepare()
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def _save(self) -> None:
        partial = self.folder / f"{STATE}.partial"
        is_switching = self.variant == "learned" and self.step == self.settings["anneal_steps"]
        content = {
            "step": self.step,
            "is_switching": is_switching,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }
        torch.save(content, partial)
        partial.replace(self.folder / STATE)

    def run(self) -> PreTrainedModel:
        """Train to the last step; return the model in evaluation mode."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = time.monotonic()
        if self.step == 0:
            self._evaluate()
        while self.step < self.settings["steps"]:
            if self.variant == "learned" and self.step == self.settings["anneal_steps"]:
                self._let_learn()
            loss, seconds = self._update()
            self.step += 1
            if self.step % self.settings["log_steps"] == 0:
                self._write({"loss": loss, "seconds": seconds})
            if self.step % self.settings["eval_steps"] == 0:
                self._evaluate()
            if time.monotonic() - saved > self.save_seconds:
                self._save()
                saved = time.monotonic()
        self._save()
        return self.model

    def _update(self) -> tuple[float, float]:
        start = time.perf_counter()
        if self.variant != "softmax" and not self._learns_alpha:
            set_step(self.model, self.step)
        batch = self.subject.batch(self.step, self.seed, self.settings["batch_size"])
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings["bf16"]):
            loss = self.subject.loss(self.model, self.teacher, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.item(), time.perf_counter() - start

    def _evaluate(self) -> None:
        if self.variant != "softmax" and not self._learns_alpha:
            set_step(self.model, self.step)
        measures = self.subject.measure(self.model, self.limits)
        measures = {key: x for key, x in measures.items() if isinstance(x, float)}
        heads = head_densities(self.model, self.subject.sample())
        self._write({"measures": measures, "density": heads["mean"]})

    def _write(self, line: Mapping[str, Any]) -> None:
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step, **line}) + "\n")
