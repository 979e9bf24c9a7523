"""Available memory, and the memory that a pass through a model takes."""

from pathlib import Path

import torch

from adasparse.longcontext.config import LongContextConfig

_GROUP = Path("/sys/fs/cgroup")
#: Overhead of the allocator and of kernel buffers beside tensors, as a factor and in bytes.
_SLACK, _OVERHEAD = 1.4, 2**26


def available_memory() -> int | None:
    """Return how many bytes can be had without swapping; None if this system does not tell.

    The smaller of what the machine has left and what a control group allows. It is that of the CPU;
    a GPU raises when it is full.
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


def forward_bytes(config: LongContextConfig, num_tokens: int, *, num_logits: int = 0) -> int:
    """Return about how many bytes a pass without gradients and cache takes beside the weights.

    Args:
        config: Configuration of the model, in float32.
        num_tokens: Number of tokens of all sequences of the batch together.
        num_logits: For how many of these there are to be logits.
    """
    width, inner = config.hidden_size, config.intermediate_size
    groups = config.num_key_value_heads or config.num_attention_heads
    heads = width + 2 * groups * config.head_dim
    # At once: the residual and its norm with either the three products of the MLP, or the heads,
    # rotated or scaled, packed keys and the output of attention.
    peak = 2 * width + max(3 * inner, 3 * heads + width)
    values = num_tokens * peak + 2 * num_logits * config.vocab_size
    return int(_SLACK * values * torch.float32.itemsize) + _OVERHEAD
