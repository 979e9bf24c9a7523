"""Memory that a pass through a long-context model takes."""

import torch

from adasparse.longcontext.config import LongContextConfig
from adasparse.training.memory import available_memory

__all__ = ["available_memory", "check_batch", "forward_bytes"]

#: Memory of the allocator and of kernels' buffers beside tensors, as a factor and in bytes.
_SLACK, _OVERHEAD = 1.4, 2**26


def forward_bytes(config: LongContextConfig, num_tokens: int, *, num_logits: int = 0) -> int:
    """Return about how many bytes a pass without gradients and cache takes beside the weights.

    Args:
        config: Configuration of a model in float32.
        num_tokens: Number of tokens of all sequences of the batch.
        num_logits: Number of tokens whose logits are computed.
    """
    width, inner = config.hidden_size, config.intermediate_size
    groups, head_dim = config.num_key_value_heads, config.head_dim
    assert groups is not None and head_dim is not None
    heads = (config.num_attention_heads + 2 * groups) * head_dim
    # At once: the residual and its norm with either the three products of the MLP, or the heads,
    # rotated or scaled, packed keys and the output of attention.
    peak = 2 * width + max(3 * inner, 3 * heads + width)
    values = num_tokens * peak + 2 * num_logits * config.vocab_size
    return int(_SLACK * values * torch.float32.itemsize) + _OVERHEAD


def check_batch(config: LongContextConfig, num_tokens: int) -> None:
    """Refuse to train with batches that memory cannot hold; a GPU raises when it is full."""
    free, needed = available_memory(), forward_bytes(config, num_tokens)
    if free is not None and needed > free and not torch.cuda.is_available():
        raise ValueError(
            f"A batch of {num_tokens:,} tokens takes at least {needed / 2**30:,.1f} GiB of memory; "
            f"{free / 2**30:,.1f} GiB are free. Make batch_size or the examples smaller."
        )
