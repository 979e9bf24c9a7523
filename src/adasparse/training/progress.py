"""Progress of training on one line."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from adasparse.training.alpha import current_alpha

_BARS = "▁▂▃▄▅▆▇█"
#: More heads than this are drawn as one block per attention.
_MOST_HEADS = 24


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
        metrics: Metrics of an evaluation to show, and their labels.
        console: Console to draw on.
    """

    def __init__(self, metrics: dict[str, str], console: Console | None = None) -> None:
        self.metrics = metrics
        self.console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._shown: dict[str, str] = {}
        self._is_scoring = False

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
            TextColumn(
                "{task.fields[status]}", table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
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
            self._is_scoring = control.should_evaluate
            if self._is_scoring:
                self._draw()

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
        news: dict[str, str] = {}
        if "loss" in logs:
            news["tokens/s"] = f"{logs['tokens_per_second']:,.0f}"
            news["loss"] = f"{logs['loss']:.3f}"
            news |= _alpha_news(model)
        for key, label in self.metrics.items():
            if key in logs:
                news[label] = f"{logs[key]:.2f}"
                self._is_scoring = False
        self._shown |= news
        if self._bar is not None:
            self._draw()
        elif news:
            self.console.print(
                f"step {state.global_step}/{state.max_steps}  {_listed(news)}", soft_wrap=True
            )

    def _draw(self) -> None:
        assert self._bar is not None
        status = "scoring development data  " * self._is_scoring + _listed(self._shown)
        self._bar.update(self._bar.task_ids[0], status=status)

    def close(self) -> None:
        """Take the bar down, whatever happened."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _listed(shown: dict[str, str]) -> str:
    return "  ".join(f"{name} {value}" for name, value in shown.items())


def _alpha_news(model: nn.Module) -> dict[str, str]:
    """Return a picture of alpha, unless all heads have the same."""
    modules = [alpha.tolist() for alpha in current_alpha(model).values()]
    heads = [x for alpha in modules for x in alpha]
    if len(set(heads)) < 2:
        return {}
    means = [sum(alpha) / len(alpha) for alpha in modules]
    return {"α": alpha_picture(heads if len(heads) <= _MOST_HEADS else means)}
