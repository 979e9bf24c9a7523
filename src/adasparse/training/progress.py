"""How training goes, on one line."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from adasparse.integrations.huggingface.measure import current_alpha

_BARS = "▁▂▃▄▅▆▇█"


def alpha_picture(values: Iterable[float], *, low: float = 1.0, high: float = 2.0) -> str:
    """Return one block per head, the taller the sparser.

    Example:
        >>> alpha_picture([1.0, 1.25, 1.5, 2.0])
        '▁▃▅█'
    """
    top = len(_BARS) - 1
    share = ((min(max(x, low), high) - low) / (high - low) for x in values)
    return "".join(_BARS[min(int(x * len(_BARS)), top)] for x in share)


class ProgressBar(TrainerCallback):
    """A bar on stderr with speed, loss, score and alpha; lines where stderr is no terminal.

    Args:
        metrics: What of an evaluation to show: name among the metrics, and label.
        console: Where to draw.
    """

    def __init__(self, metrics: dict[str, str], console: Console | None = None) -> None:
        self.metrics = metrics
        self.console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._shown: dict[str, str] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Draw the bar."""
        if not state.is_world_process_zero:
            return
        if not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
        )
        self._bar.start()
        self._bar.add_task("", total=state.max_steps, completed=state.global_step, status="")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move on."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Show the newest numbers."""
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        if "loss" in logs:
            self._shown["tokens/s"] = f"{logs['tokens_per_second']:,.0f}"
            self._shown["loss"] = f"{logs['loss']:.3f}"
            heads = [x for alpha in current_alpha(model).values() for x in alpha.tolist()]
            if len(set(heads)) > 1:
                self._shown["α"] = alpha_picture(heads)
        for key, label in self.metrics.items():
            if key in logs:
                self._shown[label] = f"{logs[key]:.2f}"
        status = "  ".join(f"{name} {value}" for name, value in self._shown.items())
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], status=status)
        else:
            self.console.print(
                f"step {state.global_step}/{state.max_steps}  {status}", soft_wrap=True
            )

    def close(self) -> None:
        """Take the bar down, whatever happened."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
