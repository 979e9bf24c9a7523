"""Memory of commands that train."""

import ctypes
import os

# Of mallopt(3) in glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER, _LARGEST = 2**31 - 1, 2**30


def keep_freed_memory() -> None:
    """Have memory that tensors free stay with the process, for the next update.

    By default glibc may return it to the system after every update, and fetching it again page by
    page then takes up to a fifth of the time. What the user has set by environment stays, and other
    systems are left as they are.
    """
    is_set = any(x in os.environ for x in ("MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"))
    if is_set or os.name != "posix":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _NEVER)
        mallopt(_MMAP_THRESHOLD, _LARGEST)
