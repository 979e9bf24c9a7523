"""Private transformers APIs that we depend on, isolated so that an upgrade touches one file."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function
from transformers.utils.import_utils import is_tracing
from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY, _active_collector

__all__ = [
    "collects_attentions",
    "is_tracing",
    "let_record",
    "packed_rows_of",
    "sliding_window_of",
]


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


def sliding_window_of(mask_function: Callable[..., Any]) -> tuple[bool, tuple[int, int]] | None:
    """Return whether a local mask function is causal, and its window ``(left, right)``.

    None for functions that are anything else, such as chunks. A local one is the conjunction of
    two, kept in its closure: a window, whose closure holds the size, and the plain function.
    """
    parts = _closure(mask_function).get("mask_functions", ())
    if len(parts) != 2 or parts[1] not in (causal_mask_function, bidirectional_mask_function):
        return None
    size = _closure(parts[0]).get("sliding_window")
    if not isinstance(size, int):
        return None
    if parts[1] is causal_mask_function:
        return True, (size - 1, 0)
    return False, (size, size)


def packed_rows_of(mask_function: Callable[..., Any]) -> tuple[Tensor, Callable[..., Any]] | None:
    """Return the number of the sequence of each token ``(b, n)``, and the mask within sequences.

    None for functions that are not the conjunction of the two. transformers makes one where
    positions restart within a row.
    """
    parts = _closure(mask_function).get("mask_functions", ())
    if len(parts) != 2:
        return None
    numbers = _closure(parts[1]).get("packed_sequence_mask")
    return (numbers, parts[0]) if isinstance(numbers, Tensor) else None


def _closure(function: Any) -> dict[str, Any]:
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells else ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
