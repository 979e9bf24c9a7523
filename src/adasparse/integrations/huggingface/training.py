"""Additions to the Trainer of transformers for training sparse models."""

from contextlib import ExitStack
from typing import Any

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from adasparse.integrations.huggingface.heads import AnnealedAlpha, sparse_heads
from adasparse.integrations.huggingface.measure import DensityMeter, current_alpha
from adasparse.nn import alpha_parameters


def set_step(model: nn.Module, step: int) -> None:
    """Move annealed exponents to where they are after ``step`` steps of training.

    ``SparsityCallback`` does this in a Trainer; call it in a loop of your own. Where alpha is not
    annealed nothing happens.
    """
    for heads in sparse_heads(model).values():
        if isinstance(heads.alpha, AnnealedAlpha):
            heads.alpha.set_step(step)


class SparsityCallback(TrainerCallback):
    """Anneals alpha, and logs alpha and density of every head wherever a Trainer reports to.

    Numbers go to TensorBoard and its like under ``alpha/<module>/<head>`` and
    ``density/<module>/<head>``, not to the terminal. Density is that of the batch of each step that
    logs; such a step runs attention twice. In a model compiled as a whole it cannot be counted.

    Args:
        trainer: Whose logs to add to; without one, only alpha is annealed.
    """

    def __init__(self, trainer: Trainer | None = None) -> None:
        self.trainer = trainer
        self._meter: DensityMeter | None = None
        self._counting = ExitStack()

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Move alpha, and count weights if this step logs."""
        set_step(model, state.global_step)
        if self.trainer is not None and _logs_after(state.global_step + 1, args, state):
            self._meter = DensityMeter(model)
            self._counting.enter_context(self._meter.running())

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Report what was counted."""
        self._counting.close()
        meter, self._meter = self._meter, None
        if meter is None or self.trainer is None:
            return
        logs = {}
        for kind, numbers in (("alpha", current_alpha(model)), ("density", meter.density())):
            for name, values in numbers.items():
                logs.update({f"{kind}/{name}/{i}": x for i, x in enumerate(values.tolist())})
        reporters: Any = tuple(INTEGRATION_TO_CALLBACK.values())
        callbacks: list[Any] = self.trainer.callback_handler.callbacks
        for callback in callbacks:
            if isinstance(callback, reporters):
                callback.on_log(args, state, control, logs=dict(logs), model=model, **kwargs)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Stop counting, should training have ended in the middle of a step."""
        self._counting.close()


def _logs_after(step: int, args: TrainingArguments, state: TrainerState) -> bool:
    """Tell whether the Trainer logs when ``step`` steps are done."""
    if args.logging_strategy == "steps":
        return step % max(state.logging_steps, 1) == 0 or (step == 1 and args.logging_first_step)
    if args.logging_strategy == "epoch" and args.num_train_epochs > 0:
        return step % max(round(state.max_steps / args.num_train_epochs), 1) == 0
    return False


class SparsityTrainerMixin:
    """Trains alpha as it should be: without weight decay, annealed and logged where that applies.

    Put it before any Trainer.

    Example:
        >>> from transformers import Seq2SeqTrainer
        >>> class SparseTrainer(SparsityTrainerMixin, Seq2SeqTrainer): ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        trainer.add_callback(SparsityCallback(trainer))

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Leave out the exponents, as ``adasparse.nn.parameter_groups`` does."""
        names: list[str] = super().get_decay_parameter_names(model)  # type: ignore[misc]
        spared = {id(x) for x in alpha_parameters(model)}
        exempt = {name for name, x in model.named_parameters() if id(x) in spared}
        return [name for name in names if name not in exempt]
