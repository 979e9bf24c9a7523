"""The model of the live explorer: its answers, and its heads while it gives them."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from adasparse._files import TextFile
from adasparse.analysis.explorer.payload import MeasuredRun, Payload, build_payload
from adasparse.analysis.explorer.server.interventions import (
    LEAST_ALPHA,
    MOST_ALPHA,
    HeadChanges,
    RequestError,
)
from adasparse.analysis.measures.collect import measure_heads
from adasparse.analysis.recording.generation import generated
from adasparse.analysis.recording.recorder import Recorder
from adasparse.analysis.recording.storage import ModelHeader, RecordedSentence, Recording
from adasparse.analysis.runs import load_run

#: Number of next tokens that are shown.
PREDICTIONS = 10
#: Example for models whose own data is not known.
_ANY_TEXT = "Where did she find the old bicycle that he sold?"
#: Characters of an example: long enough to show something, short enough to be seen whole.
_EXAMPLE_SIZE = 60
_NO_CHANGES = HeadChanges()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request.

    Args:
        characters: Characters of each text.
        tokens: Tokens of each text.
        new_tokens: Tokens that the model writes.
        seconds: Time to write them.
        changes: Heads with a changed alpha or switched off.
        body_bytes: Bytes of the request.
        waiting: Number of requests that may wait for their turn.
        wait_seconds: Time that a request may wait.
    """

    characters: int = 4000
    tokens: int = 512
    new_tokens: int = 256
    seconds: float = 30.0
    changes: int = 4096
    body_bytes: int = 256 * 1024
    waiting: int = 16
    wait_seconds: float = 20.0


class LiveModel:
    """One model, asked by many; nothing that a request changes stays.

    Args:
        model: A model of transformers that takes tokens, sparse or not; it is not changed.
        tokenizer: Its tokenizer.
        name: Name shown on the page.
        limits: Limits of a request.
        example: A sentence that the page opens with; left out if it is beyond the limits.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        *,
        name: str,
        limits: Limits | None = None,
        example: str = _ANY_TEXT,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self.recorder = Recorder(model, tokenizer, name=name)
        self._lock = threading.Lock()
        self.example = example if self._accepts(example) else ""

    @classmethod
    def load(cls, folder: str | Path, *, limits: Limits | None = None) -> "LiveModel":
        """Load a model from its folder; nothing is asked of the network."""
        run = load_run(folder)
        example = _example(run.recipe.get("data"))
        return cls(run.model, run.tokenizer, name=run.name, limits=limits, example=example)

    @property
    def header(self) -> ModelHeader:
        """The header of the model: its modules and heads."""
        return self.recorder.header

    def describe(self) -> dict[str, Any]:
        """Return the kind of model, its modules with their exponents, and the limits."""
        header = self.header
        return {
            "name": header.name,
            "kind": header.kind,
            "attention": header.attention,
            "modules": {
                name: {"kind": kind, "layer": layer, "alpha": list(alpha)}
                for kind in header.kinds
                for layer, (name, alpha) in enumerate(
                    zip(header.modules[kind], header.alpha[kind], strict=True)
                )
            },
            "limits": {
                "characters": self.limits.characters,
                "tokens": self._most_tokens(),
                "changes": self.limits.changes,
                "alpha": [LEAST_ALPHA, MOST_ALPHA],
            },
        }

    def payload(
        self, sentence: RecordedSentence | None = None, *, header: ModelHeader | None = None
    ) -> Payload:
        """Return the data of the explorer with one sentence, or none yet."""
        header = self.header if header is None else header
        recording = Recording(header=header, sentences=[] if sentence is None else [sentence])
        run = MeasuredRun(
            measures=measure_heads(recording, resamples=1), sentences=recording.sentences
        )
        return build_payload([run], title=f"Heads of {header.name}", max_bytes=8_000_000)

    def run(
        self, text: str, *, target: str | None = None, changes: HeadChanges = _NO_CHANGES
    ) -> dict[str, Any]:
        """Run the model on a text, with some heads changed for this once.

        Args:
            text: Text that the model reads.
            target: Translation to attend to in place of the model's own.
            changes: Changes of heads.

        Returns:
            ``payload``, that of the explorer with this one sentence, and ``output``, what the model
            wrote or predicts; None for an encoder.

        Raises:
            RequestError: If the request is beyond the limits or names what there is not.
        """
        output: dict[str, Any] | None = None
        with self._lock:
            self._check(text, target, changes)
            with changes.applied(self.recorder.model):
                if self.header.kind == "translation":
                    sentence, output = self._translate(text, target)
                else:
                    sentence = next(self.recorder.sentences([text]))
                if self.header.kind == "decoder":
                    output = self._predict(text)
        payload = self.payload(sentence, header=changes.header(self.header))
        return {"payload": payload, "output": output}

    def _most_tokens(self) -> int:
        return min(self.limits.tokens, self.recorder.max_length or self.limits.tokens)

    def _check(self, text: str, target: str | None, changes: HeadChanges) -> None:
        if target is not None and self.header.kind != "translation":
            raise RequestError(f"Only translation has a target; this is a {self.header.kind}.")
        for name, given in (("text", text), ("target", target)):
            if given is not None:
                self._check_text(name, given)
        count = sum(map(len, changes.alpha.values())) + sum(map(len, changes.off.values()))
        if count > self.limits.changes:
            raise RequestError(f"At most {self.limits.changes} heads may change; got {count}.")
        changes.check(self.header)

    def _accepts(self, text: str) -> bool:
        try:
            self._check_text("text", text)
        except RequestError:
            return False
        return True

    def _check_text(self, name: str, text: str) -> None:
        if not text.strip():
            raise RequestError(f"{name} must not be empty.")
        if len(text) > self.limits.characters:
            raise RequestError(
                f"{name} may have {self.limits.characters} characters; got {len(text)}."
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise RequestError(f"{name} must be valid Unicode; got half of a surrogate pair.")
        given = {"text_target": text} if name == "target" else {"text": text}
        count = len(self.recorder.tokenizer(**given)["input_ids"])
        most = self._most_tokens()
        if not 0 < count <= most:
            raise RequestError(f"{name} must have 1 to {most} tokens; got {count}.")

    def _translate(self, text: str, target: str | None) -> tuple[RecordedSentence, dict[str, Any]]:
        room = (self.recorder.max_length or self.limits.new_tokens + 1) - 1
        options = {
            "max_new_tokens": max(1, min(self.limits.new_tokens, room)),
            "max_time": self.limits.seconds,
            "do_sample": False,
        }
        sentence = next(generated(self.recorder, [text], generation=options))
        output = {"kind": "translation", "text": sentence.target_text}
        if target is not None:
            sentence = next(self.recorder.sentences([text], [target]))
        return sentence, output

    def _predict(self, text: str) -> dict[str, Any]:
        ids = self.recorder.encode(text)
        if len(ids) > 1 and ids[-1] == self.recorder.tokenizer.eos_token_id:
            ids = ids[:-1]
        inputs = torch.tensor([ids], device=self.recorder.model.device)
        with self.recorder.watched.watched(lambda kind, call: None):
            logits = self.recorder.model(input_ids=inputs).logits[0, -1]
        chances = logits.float().softmax(-1).topk(min(PREDICTIONS, len(logits)))
        tokens = self.recorder.reader.read(chances.indices.tolist()).tokens
        return {
            "kind": "predictions",
            "tokens": [
                {"token": token, "probability": probability}
                for token, probability in zip(tokens, chances.values.tolist(), strict=True)
            ],
        }


def _example(data: object) -> str:
    """Return a dev sentence of the prepared data of a run, if that is still there, else any."""
    path = Path(str(data)) / "dev.source.txt"
    if data is None or not path.is_file():
        return _ANY_TEXT
    lines = [line for line in TextFile(path, may_be_empty=True).lines() if line.strip()]
    return min(lines, key=lambda line: abs(len(line) - _EXAMPLE_SIZE), default=_ANY_TEXT)
