"""Tasks that tell whether attention finds what matters, however long the context."""

from adasparse.longcontext.tasks.flipflop import FlipFlop
from adasparse.longcontext.tasks.local_count import LocalCount
from adasparse.longcontext.tasks.rearrange import Copy, Reverse, Sort
from adasparse.longcontext.tasks.recall import MultiQueryRecall
from adasparse.longcontext.tasks.task import BOS, EOS, IGNORED, PAD, SEP, Task, TaskBatch
from adasparse.longcontext.tasks.two_back import TwoBack

#: Every task as published, by its name.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Sort(),
        Copy(),
        Reverse(),
        MultiQueryRecall(),
        LocalCount(),
        TwoBack(),
        FlipFlop(),
    )
}


def find_task(name: str) -> Task:
    """Return the task of this name."""
    if name not in TASKS:
        raise ValueError(f"a task must be one of {list(TASKS)}; got {name!r}.")
    return TASKS[name]


__all__ = [
    "BOS",
    "EOS",
    "IGNORED",
    "PAD",
    "SEP",
    "TASKS",
    "Copy",
    "FlipFlop",
    "LocalCount",
    "MultiQueryRecall",
    "Reverse",
    "Sort",
    "Task",
    "TaskBatch",
    "TwoBack",
    "find_task",
]
