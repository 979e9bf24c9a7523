"""Tasks that test whether attention finds what matters, however long the context."""

from dataclasses import replace

from adasparse.longcontext.tasks.flipflop import FlipFlop
from adasparse.longcontext.tasks.local_count import LocalCount
from adasparse.longcontext.tasks.rearrange import Copy, Reverse, Sort
from adasparse.longcontext.tasks.recall import MultiQueryRecall
from adasparse.longcontext.tasks.task import BOS, EOS, IGNORED, PAD, SEP, Task, TaskBatch
from adasparse.longcontext.tasks.two_back import TwoBack

#: Size of the largest alphabet.
MOST_SYMBOLS = 10**6
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
    """Return the task of this name; a number after it is the size of its alphabet.

    Example:
        >>> find_task("sort-8")
        Sort(num_symbols=8)
    """
    if name in TASKS:
        return TASKS[name]
    base, _, size = name.rpartition("-")
    task = TASKS.get(base)
    has_size = size.isdecimal() and len(size) < 9 and 2 <= int(size) <= MOST_SYMBOLS
    if task is None or not hasattr(task, "num_symbols") or not has_size:
        raise ValueError(
            f"a task must be one of {list(TASKS)}, or such a name with the size of its alphabet, "
            f'at most {MOST_SYMBOLS:,}, such as "sort-8"; got {name!r}.'
        )
    return replace(task, num_symbols=int(size))  # type: ignore[call-arg]


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
