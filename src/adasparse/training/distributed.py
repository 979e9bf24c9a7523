"""What several processes of one training agree on."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

Found = TypeVar("Found")


def first_decides(action: Callable[[], Found]) -> Found:
    """Return what ``action`` gives in the first of several processes; all raise what it raises.

    The others wait and do not run it.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return action()
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = action()
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    found: Found = outcome[0]
    return found
