"""Free memory of the machine, and models that would not fit into it."""

from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
#: Bytes per parameter in training: the weight, its gradient and two moments of Adam, in float32.
_BYTES = 16


def available_memory() -> int | None:
    """Return the bytes of CPU memory free without swapping; None if the system does not report it.

    It is the smaller of the machine's free memory and the limit of its control group. A GPU raises
    when it is full.
    """
    found = [x for x in (_machine(), _control_group()) if x is not None]
    return min(found, default=None)


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _control_group() -> int | None:
    try:
        limit = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used)


def check_parameters(number: int) -> None:
    """Refuse to train a model of so many parameters that memory cannot hold it."""
    free = available_memory()
    if free is not None and number * _BYTES > free:
        raise ValueError(
            f"Training a model of {number:,} parameters takes at least "
            f"{number * _BYTES / 2**30:,.1f} GiB of memory; {free / 2**30:,.1f} GiB are free. "
            "Make width, ffn, layers or the vocabulary smaller."
        )
