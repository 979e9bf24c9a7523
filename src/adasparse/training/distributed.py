"""Decisions that several processes of one training share."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

Outcome = TypeVar("Outcome")


def first_decides(action: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of ``action`` in the first of several processes; all raise its error.

    The others wait and do not run it.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return action()
    shared: list[tuple[Outcome | None, Exception | None]] = [(None, None)]
    if dist.get_rank() == 0:
        try:
            shared[0] = (action(), None)
        except Exception as error:
            shared[0] = (None, error)
    dist.broadcast_object_list(shared)
    outcome, failure = shared[0]
    if failure is not None:
        raise failure
    return outcome  # type: ignore[return-value]  # there is one where there is no error
