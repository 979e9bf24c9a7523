"""The parts of transformers used here that are not public, in one place to mend."""

from typing import Any

from transformers import PreTrainedModel
from transformers.utils.import_utils import is_tracing
from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY, _active_collector

__all__ = ["collects_attentions", "is_tracing", "let_record"]


def collects_attentions() -> bool:
    """Tell whether a model that is running was asked for attention weights.

    Some models pass ``output_attentions`` on to their attention modules, others only have what
    these return collected.
    """
    collected = _active_collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def let_record(sparse: type, dense: type[PreTrainedModel]) -> None:
    """Let models of class ``sparse`` collect the outputs that those of class ``dense`` collect.

    Constructors see to it, which a model whose class is changed has behind it.
    """
    outputs: Any = _CAN_RECORD_REGISTRY.get(str(dense))
    _CAN_RECORD_REGISTRY[str(sparse)] = outputs or getattr(dense, "_can_record_outputs", None)
