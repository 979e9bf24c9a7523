"""Callbacks of training: best model, speed, log, requests to stop."""

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from adasparse._files import write_atomically
from adasparse.training.alpha import current_alpha


class BestModel(TrainerCallback):
    """Tracks the step with the best score on development data, saves it, and ends training.

    Args:
        metric: Name among the metrics of an evaluation.
        is_better_high: Whether more is better.
        patience: Evaluations without a better score after which to stop; 0 for never.
    """

    def __init__(self, metric: str, *, is_better_high: bool, patience: int) -> None:
        self.metric, self.is_better_high, self.patience = metric, is_better_high, patience
        self._forget()

    def _forget(self) -> None:
        self.value: float | None = None
        self.step: int | None = None
        self.misses = 0

    @property
    def is_over(self) -> bool:
        """Whether patience has run out."""
        return 0 < self.patience <= self.misses

    def replay(self, history: list[dict[str, Any]]) -> None:
        """Start over with the evaluations of a checkpoint."""
        self._forget()
        for entry in history:
            if self.metric in entry:
                self._compare(entry[self.metric], entry["step"])

    def _compare(self, value: float, step: int) -> bool:
        """Return whether this is the best score so far; NaN never is."""
        if not math.isnan(value) and (
            self.value is None
            or (value > self.value if self.is_better_high else value < self.value)
        ):
            self.value, self.step, self.misses = value, step, 0
            return True
        self.misses += 1
        return False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore the state from the history of a checkpoint."""
        self.replay(state.log_history)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Compare with the best so far; save a better one, end training if patience is out."""
        assert metrics is not None
        if self._compare(metrics[self.metric], state.global_step):
            control.should_save = True
        elif self.is_over:
            control.should_save = True
            control.should_training_stop = True


class SpeedMeter(TrainerCallback):
    """Counts tokens and the time they take, evaluation and checkpoints left out."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0
        self._start: float | None = None

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Start the clock, if this is the first step."""
        if self._start is None:
            self._start = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Add the time since the last step ended, waiting for data included."""
        now = time.perf_counter()
        self.seconds += 0.0 if self._start is None else now - self._start
        self._start = now

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Leave out the time that has passed."""
        self._start = time.perf_counter()

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """Leave out the time that has passed."""
        self._start = time.perf_counter()

    def drain(self) -> float:
        """Return tokens per second since the last call."""
        speed = self.tokens / max(self.seconds, 1e-9)
        self.tokens, self.seconds = 0, 0.0
        return speed


class StopRequest(TrainerCallback):
    """Turns the first Ctrl-C or SIGTERM into a checkpoint and a stop after the current step.

    It is enough that one of several processes receives the signal. A second one, a moment later,
    stops at once.

    Args:
        report: Receives a message when the signal arrives.
    """

    #: Seconds within which signals count as one: launchers pass on what their processes received.
    same = 1.0

    def __init__(self, report: Callable[[str], None] = lambda message: None) -> None:
        self.is_asked = False
        self._report, self._process, self._since = report, os.getpid(), 0.0
        self._before: dict[int, Any] = {}

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Listen to signals, where that is possible."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a process that prepares batches; this one tells it when to end
        if not self.is_asked:
            self.is_asked, self._since = True, time.monotonic()
            self._report("Stopping after this step, with a checkpoint. Once more: at once.")
        elif time.monotonic() - self._since > self.same:
            raise KeyboardInterrupt

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save and stop if any process was asked to."""
        if args.world_size > 1:
            asked = torch.tensor(float(self.is_asked), device=args.device)
            torch.distributed.all_reduce(asked)
            if asked.item() and not self.is_asked:
                self.is_asked, self._since = True, time.monotonic()
        if self.is_asked:
            control.should_save = True
            control.should_training_stop = True

    def restore(self) -> None:
        """Restore the handlers of signals."""
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        self._before.clear()


class TrainingLog(TrainerCallback):
    """Writes one JSON object per line and logging interval: loss, speed, scores, every alpha.

    Args:
        path: Path of the file. Lines after the step that training resumes from are removed first.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remove the lines that a resumed training writes again."""
        if state.is_world_process_zero:
            lines = [line for line in read_log(self.path) if line["step"] <= state.global_step]
            write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in lines))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Add a line."""
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        line: dict[str, Any] = {"step": state.global_step}
        for key, value in logs.items():
            line[f"dev_{key.removeprefix('eval_')}" if key.startswith("eval_") else key] = value
        if "loss" in logs and model is not None:
            alpha = {name: x.tolist() for name, x in current_alpha(model).items()}
            line |= {"alpha": alpha} if alpha else {}
        line["time"] = time.time()
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a training log up to the first that is damaged, such as one cut short."""
    path = Path(path)
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            break
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            break
        lines.append(line)
    return lines
